"""Experiment: a live dashboard of a load test. It knows what `/metrics` says, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import ipywidgets as widgets

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter10.crowd import Crowd
from minillm_serve.course.chapter10.panels import describe, draw
from minillm_serve.course.chapter10.recorder import Point, Watcher
from minillm_serve.course.frontend import Links, view_data
from minillm_serve.course.render import problem_html, to_png, with_header

TITLE = "Live dashboard"
#: Seconds between two readings.
EVERY = 1.0
ON, OFF = "Start the load", "Stop the load"
RECORDED = "Recorded earlier. Press the button for a run of your own."


class Dashboard(widgets.VBox):
    """A button that starts and stops a crowd, a slider for how many come, and what is seen.

    Args:
        crowd: asks; not started yet.
        recorded: points of an earlier run: what a reader without a kernel sees.
        every: seconds between two readings.

    Attributes:
        watcher: what was seen.
        error: of the last reading or drawing, or None.
    """

    def __init__(
        self, crowd: Crowd, recorded: Sequence[Point] = (), *, every: float = EVERY
    ) -> None:
        self.crowd, self.recorded, self.every = crowd, tuple(recorded), every
        self.watcher = Watcher(crowd.url)
        self.error: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        self.button = widgets.Button(description=ON, icon="play", layout={"width": "auto"})
        self.button.on_click(lambda _: self._guard(self._toggle))
        self.rate = controls.real(
            "load", 0.0, 40.0, crowd.rate, step=0.5, unit="questions/s", fmt=".1f"
        )
        self.rate.add_class("mls-control")
        self.rate.observe(self._moved, names="value")
        look = {"width": "max-content", "max_width": "100%"}
        self.picture = widgets.Image(format="png", layout=look)
        self.picture.add_class("mls-picture")
        self.problem, self.caption = widgets.HTML(), widgets.HTML()
        self.caption.add_class("mls-caption")
        super().__init__(
            [
                widgets.HTML(f"<h4>{TITLE}</h4>"),
                Links(),
                widgets.HBox([self.button, self.rate], layout={"align_items": "center"}),
                self.problem,
                self.picture,
                self.caption,
            ]
        )
        for name in ("mls-experiment", "mls-dashboard"):
            self.add_class(name)
        self.redraw()

    @property
    def is_watching(self) -> bool:
        """Whether it reads and draws by itself."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Lets the crowd come, and shows what happens from now on.

        It reads and draws between the cells, in the event loop that a notebook's kernel runs.

        Raises:
            RuntimeError: no event loop is running.
        """
        if self.is_watching:
            return
        self.watcher = Watcher(self.crowd.url)
        self.crowd.rate = self.rate.value
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.crowd.start()
        self.button.description, self.button.icon = OFF, "stop"

    def stop(self) -> None:
        """Sends the crowd away; the picture stays. Does nothing the second time."""
        if self._task is not None:
            self._task.cancel()
        self.crowd.stop()
        self.button.description, self.button.icon = ON, "play"

    async def _run(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self.watcher.look, self.crowd.rate)
            except httpx.HTTPError as error:
                self._fail(error)
            else:
                self._guard(self.redraw)
            await asyncio.sleep(self.every)

    def redraw(self) -> None:
        """Draws what was seen last; what was recorded, as long as nothing was."""
        points = tuple(self.watcher.points)
        self.caption.value = describe(points[-1]) if points else RECORDED
        with plots.style():
            self.picture.value = to_png(draw(points or self.recorded, self.rate.value))

    def _toggle(self) -> None:
        (self.stop if self.is_watching else self.start)()

    def _moved(self, change: dict[str, Any]) -> None:
        self.crowd.rate = change["new"]
        self._guard(self.redraw)

    def _guard(self, what: Callable[[], None]) -> None:
        """Callbacks fail silently: what they raise is to be seen (B152)."""
        try:
            what()
            self.error, self.problem.value = None, ""
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.error, self.problem.value = error, problem_html(error)

    def static_png(self) -> bytes:
        """The recorded run, for views without a kernel."""
        lines = [TITLE, "A recorded run. Run this cell and press the button for one of your own."]
        with plots.style():
            figure = draw(self.recorded, self.recorded[-1].rate if self.recorded else 0.0)
            return with_header(to_png(figure), lines, plots.DPI)

    def __repr__(self) -> str:
        """The same text at each run."""
        return f"{TITLE}: waiting, running, KV usage, busy share, TTFT and TPOT of a load test"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Live widget, recorded picture, stable text: each front end takes what it can show."""
        return {"text/plain": repr(self), **view_data(self), "image/png": self.static_png()}
