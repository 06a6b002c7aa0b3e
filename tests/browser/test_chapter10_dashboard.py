"""The live dashboard in a real JupyterLab: it moves while people ask, and not afterwards."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import BrowserContext, Locator, expect

from minillm_serve.course.lab_server import LabServer
from tests.browser.conftest import REPOSITORY
from tests.browser.lab_page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

SERVER = f"""import sys, tempfile
from pathlib import Path
sys.path.insert(0, {str(REPOSITORY)!r})
from minillm_serve import LLM
from minillm_serve.async_llm import AsyncLLM
from minillm_serve.course.chapter10 import crowd
from minillm_serve.course.chapter10.dashboard import Dashboard
from minillm_serve.course.chapter10.recorder import record
from minillm_serve.server.app import create_app
from minillm_serve.server.background import BackgroundServer
from minillm_serve.server.settings import ServerSettings
from tests.llm.tiny import save_tiny
llm = LLM(save_tiny(Path(tempfile.mkdtemp())), num_blocks=64, block_size=4, max_num_seqs=4)
settings = ServerSettings(served_model_name="tiny", drain_seconds=0.0)
server = BackgroundServer(create_app(AsyncLLM(llm), settings))"""

SHOWN = """people = crowd.Crowd(server.url, "tiny", [[5, 6, 7]], max_tokens=8, rate=6.0)
Dashboard(people, record(people, [6.0], each=0.5, every=0.1), every=0.5)"""

SOURCE = """e => e.querySelector('.mls-picture').src"""


@pytest.fixture(scope="module")
def page(context: BrowserContext, lab_server: LabServer, lab_root: Path) -> Iterator[LabPage]:
    """A notebook with a server and the dashboard, nothing pressed yet."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [new_code_cell(source, id=f"c{i}") for i, source in enumerate((SERVER, SHOWN))]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, lab_root / "notebooks" / "dashboard.ipynb")
    page = LabPage(context, lab_server)
    page.open("notebooks/dashboard.ipynb")
    page.run_all(timeout_s=120)
    assert page.cell_errors() == []
    yield page
    page.assert_clean()
    page.close()


@pytest.fixture
def dashboard(page: LabPage) -> Locator:
    """The widget, with its recorded picture there."""
    found = page.experiment("Live dashboard")
    expect(found.locator("img")).to_be_visible()
    return found


def wait_for_another_picture(page: LabPage, dashboard: Locator) -> None:
    before = dashboard.evaluate(SOURCE)
    page.page.wait_for_function(
        f"([e, before]) => ({SOURCE})(e) !== before", arg=[dashboard.element_handle(), before]
    )


def test_it_moves_while_people_ask_follows_the_slider_and_stops(
    page: LabPage, dashboard: Locator
) -> None:
    caption = dashboard.locator(".mls-caption")
    expect(caption).to_contain_text("Recorded earlier")
    dashboard.get_by_role("button", name="Start the load").click()
    for _ in range(3):
        wait_for_another_picture(page, dashboard)
    expect(caption).to_contain_text("6 questions a second are asked", timeout=30_000)
    page.press(dashboard.locator(".noUi-handle").first, "ArrowRight")
    expect(caption).to_contain_text("6.5 questions a second are asked", timeout=30_000)
    expect(dashboard.locator(".mls-problem")).to_have_count(0)
    dashboard.get_by_role("button", name="Stop the load").click()
    expect(dashboard.get_by_role("button", name="Start the load")).to_be_visible()
    page.page.wait_for_timeout(1500)  # three readings would have been made
    still = dashboard.evaluate(SOURCE)
    page.page.wait_for_timeout(1500)
    assert dashboard.evaluate(SOURCE) == still


def test_the_cell_may_be_run_again_b155(page: LabPage) -> None:
    page.run_all(timeout_s=120)
    assert page.cell_errors() == []
    again = page.experiment("Live dashboard")
    again.get_by_role("button", name="Start the load").click()
    wait_for_another_picture(page, again)
    again.get_by_role("button", name="Stop the load").click()
