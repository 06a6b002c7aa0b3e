"""Doors to stand against a rush, and a picture of what each leads to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.core import (
    Accept,
    Admission,
    Load,
    Queue,
    Refuse,
    Request,
    Verdict,
    asked_tokens,
)
from minillm_serve.course import controls, plots
from minillm_serve.course.chapter10 import burst
from minillm_serve.course.experiment import Experiment
from minillm_serve.course.predict import Predict

#: Seconds of wait that the pictures show.
TALLEST = 12.0


class Open(Admission):
    """Lets everybody in who can ever be served."""


class AtMost8(Admission):
    """Refuses while eight wait, whatever they bring; come again in a second."""

    def admit(self, request: Request, load: Load) -> Verdict:
        """See `AdmissionPolicy`."""
        return Refuse(1.0, "8 wait already") if load.num_waiting >= 8 else Accept()


class InTime(Admission):
    """Refuses who would not begin within the promise, by `Load.estimated_wait`."""

    def admit(self, request: Request, load: Load) -> Verdict:
        """See `AdmissionPolicy`."""
        wait = load.estimated_wait
        if wait > burst.PATIENCE:
            return Refuse(max(1.0, wait), "it would be late")
        return Queue(burst.PATIENCE)


class Fair:
    """The same, and the second half of the queue is for tenants who hold little."""

    def __init__(self, *, max_model_len: int, pool_tokens: int, vocab_size: int) -> None:
        self._limits = Admission(
            max_model_len=max_model_len, pool_tokens=pool_tokens, vocab_size=vocab_size
        )
        self.max_len = self._limits.max_len
        self._inside: dict[str, tuple[str | None, int]] = {}

    def check(self, request: Request) -> None:
        """See `AdmissionPolicy`."""
        self._limits.check(request)

    def admit(self, request: Request, load: Load) -> Verdict:
        """See `AdmissionPolicy`."""
        wait, tokens = load.estimated_wait, asked_tokens(request, load.max_len)
        tenant, held = request.cache_salt, list(self._inside.values())
        share = (tokens + sum(n for _, n in held)) / len({name for name, _ in held} | {tenant})
        greedy = tokens + sum(n for name, n in held if name == tenant) > share
        if wait > burst.PATIENCE or (wait > burst.PATIENCE / 2 and greedy):
            return Refuse(max(1.0, wait), "others have less" if greedy else "it would be late")
        self._inside[request.request_id] = tenant, tokens
        return Queue(burst.PATIENCE)

    def leave(self, request_id: str) -> None:
        """See `AdmissionPolicy`."""
        self._inside.pop(request_id, None)


#: What chapter 10 compares.
DOORS: Mapping[str, burst.MakeDoor] = {
    "everybody": Open,
    "8 may wait": AtMost8,
    "who is in time": InTime,
    "in time, and fair": Fair,
}


def draw(doors: Mapping[str, burst.MakeDoor], crowd: burst.Rush | None = None) -> Figure:
    """The waits of a rush behind each door, one panel a door."""
    crowd = crowd or burst.rush()
    served = {name: burst.serve(door, crowd) for name, door in doors.items()}
    return draw_served(served)


def draw_served(served: Mapping[str, burst.Rushed]) -> Figure:
    """The same, of rushes that have been served."""
    fig, axes = plots.figure(1, len(served), height=3.7, sharey=True, squeeze=False)
    for ax, (name, rushed) in zip(axes[0], served.items(), strict=True):
        _draw_waits(ax, rushed)
        loud, quiet = rushed.share(burst.LOUD), rushed.quiet_share
        plots.label(ax, x="came at (s)", title=name)
        ax.title.set_fontsize(10)
        ax.text(
            0.02,
            0.88,
            f"{rushed.goodput:.1f} a second in time\nloud: {loud:.0%}\nothers: {quiet:.0%} or more",
            transform=ax.transAxes,
            fontsize=8.5,
            va="top",
        )
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    axes[0][0].set_ylabel("first token after (s)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9.5)
    return fig


def _draw_waits(ax: Axes, rushed: burst.Rushed) -> None:
    ax.axvspan(*burst.BURST, color=plots.PALE, alpha=0.6, lw=0)
    ax.axhline(burst.PATIENCE, color=plots.COLORS["limit"], ls="--", lw=1.4, label="promised")
    groups = (
        ((burst.LOUD,), plots.ORANGE, "the loud one"),
        (burst.QUIET, plots.BLUE, "the other three"),
    )
    for names, color, label in groups:
        when, wait = burst.waits(rushed, names)
        ax.scatter(when, np.minimum(wait, TALLEST), s=13, color=color, label=label, zorder=3)
        lost = when[np.isnan(wait)]
        ax.scatter(lost, np.full(len(lost), TALLEST), s=20, marker="x", color=color, lw=1.2)
    ax.set(ylim=(0, 1.06 * TALLEST), xlim=(0, burst.SECONDS))


@lru_cache(maxsize=64)
def _served(door: str, times: int, seats: int) -> burst.Rushed:
    return burst.serve(DOORS[door], burst.rush(times=float(times)), seats=seats)


def experiment() -> Experiment:
    """The rush, to be turned: how loud the loud one is, how many seats, which door."""
    everybody = _served("everybody", 10, burst.SEATS)
    return Experiment(
        draw_one,
        {
            "times": controls.integer("the loud one sends", 1, 20, 10, unit="times as much"),
            "seats": controls.integer("seats", 4, 24, burst.SEATS),
            "door": controls.choice("let in", list(DOORS), "everybody"),
        },
        title="Which door?",
        describe=describe,
        predict=Predict(
            "For ten seconds one of four tenants sends ten times as much: more comes than the "
            "server can do. Everybody is let in. Of all requests of the three tenants who "
            f"send no more than ever, what share gets a first token within {burst.PATIENCE:g} s?",
            answer=round(100 * everybody.share(*burst.QUIET)),
            unit="%",
            within=0.25,
            explain="They stand in the same line. It is full of the loud one's requests, and is "
            "still there long after the burst.",
        ),
    )


def draw_one(times: int, seats: int, door: str) -> Figure:
    """The waits behind one door, and how many knocked and were served, second by second."""
    rushed = _served(door, times, seats)
    fig, (waits, flow) = plots.figure(1, 2, height=3.9, width_ratios=(3, 2))
    _draw_waits(waits, rushed)
    said = f"{rushed.goodput:.1f} requests a second in time"
    plots.label(waits, x="came at (s)", y="first token after (s)", title=said)
    waits.legend(loc="upper right", frameon=False, fontsize=9)
    came = np.array([arrival.time for arrival in rushed.rush.arrivals])
    bins = np.arange(0.0, burst.SECONDS + 1)
    lost = np.isnan(rushed.ttft)
    groups = (came[rushed.in_time], came[~rushed.in_time & ~lost], came[lost])
    colors = (plots.COLORS["useful"], plots.COLORS["wasted"], plots.GREY)
    names = ("in time", "late", "not served")
    flow.hist(groups, bins=list(bins), stacked=True, color=colors, label=names)
    plots.label(flow, x="came at (s)", y="requests a second", title="What became of them")
    flow.legend(loc="upper right", frameon=False, fontsize=9)
    flow.set_xlim(0, burst.SECONDS)
    return fig


def describe(times: int, seats: int, door: str) -> str:
    """What the picture shows, in words."""
    rushed = _served(door, times, seats)
    late = int((np.nan_to_num(rushed.ttft, nan=0.0) > burst.PATIENCE).sum())
    return (
        f"Of {len(rushed.ttft)} requests {int(rushed.in_time.sum())} are served in time, {late} "
        f"late and {int(np.isnan(rushed.ttft).sum())} not at all. Of the loud tenant's "
        f"{rushed.share(burst.LOUD):.0%} are in time, of each other's at least "
        f"{rushed.quiet_share:.0%}. All knocked {int(rushed.tries.sum()):,} times."
    )
