"""Experiment: schedules as Gantt charts, drawn from the record of a real engine."""
# ruff: noqa: N803 - arguments have the names of the course's symbols

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter04 import bars, schedules
from minillm_serve.course.chapter04.bars import Bar
from minillm_serve.course.chapter04.schedules import SCHEDULERS, Schedule
from minillm_serve.course.chapter04.theory import spread
from minillm_serve.course.experiment import Experiment
from minillm_serve.course.predict import Predict

ALL = "all three"
MEAN = 24  # tokens of an answer
WAITING = plots.COLORS["waiting"]
BUSY, FOLLOWED = plots.COLORS["decode"], plots.GREEN
WASTED: dict[str, Any] = {
    "facecolor": "#FBE3D6", "edgecolor": plots.COLORS["wasted"], "hatch": "////", "lw": 0
}  # fmt: skip


def experiment() -> Experiment:
    """The experiment, ready for the last line of a cell."""
    start = {name: control.value for name, control in knobs().items()}
    shown = chosen(**start)
    return Experiment(
        draw,
        knobs(),
        title="Who sits where, and when",
        describe=describe,
        predict=Predict(
            f"{start['people']} people, a batch of {start['B']} slots, answers of very "
            f"different lengths. With *static* batching all are served after "
            f"{1e3 * shown['static'].seconds:,.0f} ms. After how many with *continuous*?",
            answer=round(1e3 * shown["continuous"].seconds),
            unit="ms",
            within=0.2,
            explain="No step is faster. Fewer slots of them are empty.",
        ),
    )


def knobs() -> dict[str, Any]:
    """Its controls."""
    ms = "ms"
    return {
        "who": controls.choice("scheduler", [ALL, *SCHEDULERS], ALL),
        "B": controls.integer("batch B", 1, 8, 4, tip="Slots of the batch"),
        "people": controls.integer("people", 4, 30, 14),
        "gap": controls.integer("one comes every", 0, 200, 40, step=5, unit=ms, tip="On average"),
        "cv": controls.real("spread of answers", 0, 2, 1.0, tip="Standard deviation over mean"),
        "delay": controls.integer("queue delay", 0, 400, 50, step=10, unit=ms, tip="Dynamic only"),
        "follow": controls.integer("follow person", 0, 29, 6),
        "seed": controls.integer("deal again", 0, 20, 0, tip="Other people"),
    }


@lru_cache(maxsize=256)
def made(
    scheduler: str, B: int, people: int, gap: int, cv: float, delay: int, seed: int
) -> Schedule:
    """A schedule on simulated time; `gap` and `delay` in ms."""
    came = schedules.crowd(people, gap / 1e3, spread(MEAN, cv), seed=seed)
    return schedules.run(scheduler, came, B, delay=delay / 1e3)[0]


def chosen(who: str, follow: int, **deal: Any) -> dict[str, Schedule]:
    """The schedules that are shown, by name. (Whom we follow changes none of them.)"""
    return {name: made(name, **deal) for name in (SCHEDULERS if who == ALL else [who])}


def describe(who: str, people: int, follow: int, **deal: Any) -> str:
    """What the picture shows, in words."""
    person = str(min(follow, people - 1))
    told = []
    for name, one in chosen(who, follow, people=people, **deal).items():
        began, ended = one.times()[person]
        arrived = one.arrivals[person] - one.began
        told.append(
            f"{name}: {one.busy_share:.0%} of the slots at work, {one.throughput:.0f} tokens/s; "
            f"person {person} waits {1e3 * (began - arrived):.0f} ms to begin and has the whole "
            f"answer after {1e3 * (ended - arrived):.0f} ms"
        )
    return ". ".join(told) + "."


def draw(who: str, people: int, follow: int, delay: int, **deal: Any) -> Figure:
    """One chart a scheduler, over the same time."""
    found = chosen(who, follow, people=people, delay=delay, **deal)
    until = max(one.seconds for one in found.values())
    height = 3.4 if len(found) == 1 else 6.6
    fig, axes = plots.figure(len(found), 1, height=height, sharex=True, sharey=True, squeeze=False)
    for ax, (name, one) in zip(axes[:, 0], found.items(), strict=True):
        draw_schedule(ax, one, follow=str(min(follow, people - 1)), unit=1e3, until=until)
        wait = f", waiting {delay} ms at most" if name == "dynamic" else ""
        plots.label(ax, y="slot", title=f"{name.capitalize()}{wait}: {headline(one)}")
    axes[-1, 0].set_xlabel("ms after the first one came")
    legend(fig)
    return fig


def headline(one: Schedule) -> str:
    """Its two numbers."""
    return f"{one.busy_share:.0%} of the slots at work, {one.throughput:.0f} tokens/s"


def draw_schedule(
    ax: Axes,
    one: Schedule,
    *,
    follow: str = "",
    unit: float = 1.0,
    until: float | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """A bar a person in the slot where it sat; hatched where a row was dragged along empty.

    Args:
        ax: where.
        one: from the simulator or from the real model.
        follow: request id to be picked out.
        unit: time units of the axis in a second.
        until: seconds that the axis shows; by default up to the last token.
        names: request id -> what is written on its bars; by default the id.
    """
    end = until or one.seconds
    for begins, ends in bars.held_up(one):
        if ends - begins > 0.004 * end:  # shorter ones are the machine's own, on a real clock
            ax.axvspan(unit * begins, unit * ends, color=WAITING, alpha=0.55, lw=0)
    boxes(ax, bars.idle(one, dragged_only=True), unit, **WASTED)
    wrote = [bar for bar in bars.busy(one) if not bar.is_prompt]
    read = [bar for bar in bars.busy(one) if bar.is_prompt]
    edge: dict[str, Any] = {"edgecolor": "white", "lw": 0.8}
    boxes(ax, read, unit, facecolor=plots.COLORS["prefill"], **edge)
    boxes(ax, [b for b in wrote if b.request_id != follow], unit, facecolor=BUSY, **edge)
    boxes(ax, [b for b in wrote if b.request_id == follow], unit, facecolor=FOLLOWED, **edge)
    for bar in wrote:
        text = (names or {}).get(bar.request_id, bar.request_id)
        if bar.seconds > 0.011 * end * len(text):
            ax.text(unit * (bar.began + bar.ended) / 2, bar.slot, text, color="white",
                    ha="center", va="center", fontsize=8.5, clip_on=True)  # fmt: skip
    came = {name: unit * (time - one.began) for name, time in one.arrivals.items()}
    ax.plot(list(came.values()), [-0.75] * len(came), "v", color=plots.INK, ms=5, clip_on=False)
    if follow in came:
        ax.plot(came[follow], -0.75, "v", color=FOLLOWED, ms=7, clip_on=False)
    ax.set_xlim(-0.01 * unit * end, 1.01 * unit * end)
    ax.set_ylim(one.record.num_slots - 0.5, -1.1)
    ax.set_yticks(range(one.record.num_slots), map(str, range(one.record.num_slots)))
    ax.grid(axis="y", visible=False)


def boxes(ax: Axes, drawn: Sequence[Bar], unit: float, **look: Any) -> PolyCollection:
    """All bars of one look as one artist: hundreds of single ones would take seconds."""
    corners = []
    for bar in drawn:
        left, right = unit * bar.began, unit * bar.ended
        low, high = bar.slot - 0.43, bar.slot + 0.43
        corners.append([(left, low), (left, high), (right, high), (right, low)])
    made = PolyCollection(corners, **look)
    ax.add_collection(made)
    return made


def legend(fig: Figure) -> None:
    """What the colours mean, once for all charts."""
    parts = [
        Patch(color=plots.COLORS["prefill"], label="reads the prompt"),
        Patch(color=plots.COLORS["decode"], label="writes"),
        Patch(label="done, row still taken", **WASTED),
        Patch(color=WAITING, alpha=0.55, label="batch waits for more people"),
    ]
    fig.legend(handles=parts, loc="outside lower center", ncols=4, fontsize=9.5, frameon=False)
