"""Drive JupyterLab as a reader does: open a notebook, run it, point, press keys, and look."""

from __future__ import annotations

import re
import uuid
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page, Request, WebSocket

from minillm_serve.course.lab_server import HOST, LabServer

# Console errors that say nothing about the course, each with its reason. None is known now.
ALLOWED_CONSOLE: tuple[re.Pattern[str], ...] = ()

KERNEL_READY = """() => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  const session = panel?.context?.sessionContext ?? panel?.sessionContext;
  const kernel = session?.session?.kernel;
  return Boolean(session?.isReady && kernel?.status === 'idle'
                 && kernel?.connectionStatus === 'connected');
}"""

KERNEL_IDLE = """() => window.jupyterapp.shell.currentWidget
  ?.sessionContext?.session?.kernel?.status === 'idle'"""


class LabPage:
    """One notebook open in one browser page.

    Attributes:
        page: Playwright's page.
        faults: JavaScript errors and requests to other hosts, as they came; a test ends by calling
            `assert_clean`.
    """

    def __init__(self, context: BrowserContext, server: LabServer) -> None:
        self.server = server
        self.faults: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("pageerror", lambda error: self.faults.append(f"JavaScript error: {error}"))
        self.page.on("console", self._on_console)
        self.page.on("request", self._on_request)
        self.page.on("websocket", self._on_websocket)

    # -- what must not happen -------------------------------------------------------------------

    def _on_console(self, message: ConsoleMessage) -> None:
        text = f"{message.text} ({message.location.get('url', '')})"
        if message.type == "error" and not any(one.search(text) for one in ALLOWED_CONSOLE):
            self.faults.append(f"console error: {text}")

    def _check_host(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("data", "blob"):
            return
        if (parts.hostname, parts.port) != (HOST, self.server.port):
            self.faults.append(f"request to another host: {url}")

    def _on_request(self, request: Request) -> None:
        self._check_host(request.url)

    def _on_websocket(self, socket: WebSocket) -> None:
        self._check_host(socket.url)

    def assert_clean(self) -> None:
        """No JavaScript error, no console error, no request to another host so far."""
        assert not self.faults, "\n".join(self.faults)

    # -- driving --------------------------------------------------------------------------------

    def open(self, notebook: str, *, theme: str | None = None) -> None:
        """Open a notebook (path below the server's root) in a workspace of its own.

        Waits for the kernel itself: the status bar says 'idle' before there is one.
        """
        base = f"http://{HOST}:{self.server.port}/lab/workspaces/t{uuid.uuid4().hex[:10]}"
        self.page.goto(f"{base}/tree/{notebook}?token={self.server.token}&reset")
        self.page.wait_for_function(KERNEL_READY, timeout=90_000)
        if theme is not None:
            self.page.evaluate(
                "name => window.jupyterapp.commands.execute('apputils:change-theme',"
                " {theme: name})",
                theme,
            )
            self.page.wait_for_selector(
                f'body[data-jp-theme-name="{theme}"]', state="attached", timeout=20_000
            )

    def run_all(self, timeout_s: float = 120) -> None:
        """Run every cell and wait for the kernel to be idle again."""
        self.page.set_default_timeout(timeout_s * 1000)
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        self.page.wait_for_function(KERNEL_IDLE, timeout=timeout_s * 1000)
        self.page.set_default_timeout(30_000)

    def cell_errors(self) -> list[str]:
        """Texts of the cells that ended in an exception."""
        selector = '.jp-RenderedText[data-mime-type="application/vnd.jupyter.error"]'
        return self.page.locator(selector).all_inner_texts()

    def experiment(self, title: str) -> Locator:
        """The live experiment with this title."""
        found = self.page.locator(".mls-experiment", has=self.page.locator("h4", has_text=title))
        found.first.wait_for()
        found.first.scroll_into_view_if_needed()
        return found.first

    def press(self, target: Locator, *keys: str) -> None:
        """Focus `target` and press keys on it."""
        target.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def close(self) -> None:
        """Close the page and end its kernel, so that kernels do not pile up."""
        self.page.evaluate("() => window.jupyterapp?.serviceManager?.sessions?.shutdownAll()")
        self.page.close()
