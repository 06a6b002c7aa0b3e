"""Experiment: a live dashboard of a load test. It knows what `/metrics` says, and nothing else."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import ipywidgets as widgets
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter10.crowd import Crowd
from minillm_serve.course.chapter10.watch import Reading, Span, read
from minillm_serve.course.frontend import Links, view_data
from minillm_serve.course.render import problem_html, to_png, with_header

TITLE = "Live dashboard"
#: Seconds between two readings, and how many points are shown.
EVERY, SHOWN = 1.0, 60
ON, OFF = "Start the load", "Stop the load"


@dataclass(frozen=True, slots=True)
class Point:
    """One column of the dashboard.

    Attributes:
        at: seconds since the first reading.
        rate: questions a second that were being asked.
        span: what happened since the reading before.
    """

    at: float
    rate: float
    span: Span


class Watcher:
    """Reads a server's metrics now and then, and keeps what was seen.

    Args:
        url: the server's.
        most: points to keep.
    """

    def __init__(self, url: str, most: int = SHOWN) -> None:
        self.url = url
        self.points: deque[Point] = deque(maxlen=most)
        self._first: Reading | None = None
        self._last: Reading | None = None

    def look(self, rate: float = 0.0) -> None:
        """Reads once more.

        Raises:
            httpx.HTTPError: the server is not there.
        """
        now = read(self.url)
        if self._first is None or self._last is None:
            self._first = now
        else:
            at = now.time - self._first.time
            self.points.append(Point(at, rate, Span(self._last, now)))
        self._last = now


def draw(points: Sequence[Point]) -> Figure:
    """People, the two numbers, and the two times, over the last minute."""
    fig, axes = plots.figure(2, 2, height=4.9, sharex=True)
    at = [point.at for point in points]
    spans = [point.span for point in points]
    people, numbers, ttft, tpot = axes.flat
    _draw_people(people, points)
    _draw_shares(numbers, points)
    for ax, name, values in (
        (ttft, "TTFT", [span.ttft for span in spans]),
        (tpot, "TPOT", [span.tpot for span in spans]),
    ):
        known = [(x, 1e3 * y) for x, y in zip(at, values, strict=True) if y is not None]
        ax.plot(*zip(*known, strict=True) if known else ([], []), "o-", ms=3.5, lw=1.6)
        ax.set_ylim(bottom=0)
        said = f"{name} {known[-1][1]:,.0f} ms" if known else f"{name}: nobody yet"
        plots.label(ax, x="time (s)", y="ms", title=said)
    for ax in axes.flat:
        ax.title.set_fontsize(11)
        if at:
            ax.set_xlim(at[0], max(at[-1], at[0] + 5.0))
    return fig


def _draw_people(ax: Axes, points: Sequence[Point]) -> None:
    at = [point.at for point in points]
    running, waiting, refused = (
        [getattr(point.span, name) for point in points]
        for name in ("running", "waiting", "refused")
    )
    colors = (plots.COLORS["decode"], plots.COLORS["waiting"])
    ax.stackplot(at, running, waiting, colors=colors, labels=("running", "waiting"))
    ax.plot(at, refused, "x", color=plots.COLORS["limit"], ms=5, label="refused")
    ax.set_ylim(bottom=0)
    last = points[-1].span if points else None
    said = f"{last.running} running, {last.waiting} waiting" if last else "nobody yet"
    plots.label(ax, y="sequences", title=said)
    ax.legend(loc="upper left", ncols=3, fontsize=8.5, frameon=False, columnspacing=1.0)
    top = max([r + w for r, w in zip(running, waiting, strict=True)] + refused + [4])
    ax.set_ylim(0, 1.3 * top)


def _draw_shares(ax: Axes, points: Sequence[Point]) -> None:
    at = [point.at for point in points]
    kv, busy = ([100 * getattr(p.span, name) for p in points] for name in ("kv_usage", "busy"))
    ax.plot(at, kv, color=plots.COLORS["kv"], label="KV usage")
    ax.plot(at, busy, color=plots.ORANGE, label="busy")
    ax.set_ylim(0, 128)
    ax.set_yticks([0, 50, 100])
    said = f"KV {kv[-1]:.0f}% used, {busy[-1]:.0f}% busy" if points else "nothing yet"
    plots.label(ax, y="%", title=said)
    ax.legend(loc="upper left", ncols=2, fontsize=8.5, frameon=False)


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
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._stopping = False
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
        self._show(self.recorded, "Recorded earlier. Press the button for a run of your own.")

    @property
    def is_watching(self) -> bool:
        """Whether a thread is reading and drawing."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Lets the crowd come, and shows what happens from now on."""
        if self.is_watching:
            return
        self.watcher, self._stopping = Watcher(self.crowd.url), False
        self.crowd.rate = self.rate.value
        self.crowd.start()
        self.button.description, self.button.icon = OFF, "stop"
        self._thread = threading.Thread(target=self._run, name="dashboard", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Sends the crowd away; the picture stays. Does nothing the second time."""
        self._stopping = True
        self._wake.set()
        self.crowd.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._wake.clear()
        self.button.description, self.button.icon = ON, "play"

    def tick(self) -> None:
        """Reads and draws once; what goes wrong is shown in place of the picture."""
        self._guard(self._tick)

    def _tick(self) -> None:
        self.watcher.look(self.crowd.rate)
        points = tuple(self.watcher.points)
        if points:
            self._show(points, describe(points[-1]))

    def _run(self) -> None:
        while not self._stopping:
            self.tick()
            self._wake.wait(self.every)

    def _toggle(self) -> None:
        (self.stop if self.is_watching else self.start)()

    def _moved(self, change: dict[str, Any]) -> None:
        self.crowd.rate = change["new"]

    def _guard(self, what: Any) -> None:
        """Callbacks fail silently: what they raise is to be seen (B152)."""
        try:
            what()
            self.error, self.problem.value = None, ""
        except Exception as error:
            self.error, self.problem.value = error, problem_html(error)

    def _show(self, points: Sequence[Point], said: str) -> None:
        with plots.style():
            self.picture.value = to_png(draw(points))
        self.caption.value = said

    def static_png(self) -> bytes:
        """The recorded run, for views without a kernel."""
        lines = [TITLE, "A recorded run. Run this cell and press the button for one of your own."]
        with plots.style():
            figure = draw(self.recorded)
            return with_header(to_png(figure), lines, plots.DPI)

    def __repr__(self) -> str:
        """The same text at each run."""
        return f"{TITLE}: waiting, running, KV usage, busy share, TTFT and TPOT of a load test"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Live widget, recorded picture, stable text: each front end takes what it can show."""
        return {"text/plain": repr(self), **view_data(self), "image/png": self.static_png()}


def describe(point: Point) -> str:
    """The newest column in words."""
    span = point.span
    return (
        f"{point.rate:g} questions a second are asked: {span.tokens_per_second:.0f} tokens a "
        f"second come out, {span.running} sequences run, {span.waiting} wait, and "
        f"{span.refused} were refused since the last look."
    )


def record(crowd: Crowd, rates: Sequence[float], *, each: float, every: float = 0.5) -> list[Point]:
    """A run by a script: so many questions a second, one rate after the other.

    Args:
        crowd: comes, and is gone in the end.
        rates: questions a second.
        each: seconds of each.
        every: seconds between two readings.
    """
    watcher = Watcher(crowd.url, most=1000)
    watcher.look()
    with contextlib.closing(_Started(crowd)):
        for rate in rates:
            crowd.rate = rate
            until = crowd.clock() + each
            while crowd.clock() < until:
                threading.Event().wait(every)
                with contextlib.suppress(httpx.TimeoutException):
                    watcher.look(rate)
    return list(watcher.points)


class _Started:
    """Closing it stops the crowd."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        crowd.start()

    def close(self) -> None:
        self._crowd.stop()
