"""Experiment: the tree. Whose blocks are whose while people come, talk and leave."""
# ruff: noqa: N803 - arguments have the names of the course's symbols

from __future__ import annotations

import functools

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter06 import tree
from minillm_serve.course.chapter06.world import MOST_USERS, STEPS, Moment, chat
from minillm_serve.course.formula import Symbol
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.course.predict import Predict

#: Where it begins.
STEP, USERS, SHARED, BLOCK_SIZE, POOL = 29, 8, 16, 4, 48
#: The tree, blocks over time and tokens so far: left, bottom, width and height, of the figure's.
PLACES = ((0.01, 0.42, 0.98, 0.525), (0.065, 0.075, 0.525, 0.215), (0.685, 0.075, 0.3, 0.215))
FORMULA = (
    r"\text{held} = \lfloor S / P \rfloor + {\sum}_{i=1}^{B}"
    r" \left( \lceil L_i / P \rceil - \lfloor S / P \rfloor \right)"
)
SYMBOLS = {
    "S": Symbol("S", "tokens that all begin with", "Once for all, as far as they fill blocks"),
    "P": Symbol("P", "tokens a block"),
    "B": Symbol("B", "users who are being answered", "One of them at least"),
    "L": Symbol("L_i", "tokens of user i in memory"),
}


def experiment() -> FormulaExperiment:
    """The experiment, ready for the last line of a cell."""
    return FormulaExperiment(
        draw,
        {
            "step": controls.integer("after step", 1, STEPS, STEP),
            "users": controls.integer("users who come", 1, MOST_USERS, USERS),
            "S": controls.integer("shared S", 0, 32, SHARED, step=2, unit="tokens"),
            "P": controls.powers_of_two("block size P", 2, 8, BLOCK_SIZE, unit="tokens"),
            "pool": controls.integer("pool", 24, 64, POOL, unit="blocks"),
            "cache": controls.choice("index", ["hash", "radix"], "radix"),
        },
        title="The tree",
        formula=FORMULA,
        symbols=SYMBOLS,
        live=live,
        result=result,
        describe=describe,
        predict=_question(),
    )


def _question() -> Predict:
    now = chat("radix", USERS, SHARED, BLOCK_SIZE, POOL)[STEP - 1]
    return Predict(
        f"{len(now.running)} users are being answered. Their block tables have "
        f"{sum(now.named.values())} entries in all, and all of them begin with the same {SHARED} "
        f"tokens, in blocks of {BLOCK_SIZE}. How many different blocks are that?",
        answer=now.num_live,
        unit="blocks",
        within=0.0,
        explain=f"The {SHARED // BLOCK_SIZE} blocks of the beginning are in every table, and in "
        "memory once.",
    )


def _now(step: int, users: int, S: int, P: int, pool: int, cache: str) -> Moment:
    return chat(cache, users, S, P, pool)[step - 1]


def formula(moment: Moment, S: int, P: int) -> int:
    """Blocks that the tables name by the formula, with tokens in memory as they are."""
    shared = S // P
    own = sum(-(-len(one.tokens) // P) - shared for one in moment.running)
    return shared + own if moment.running else 0


def live(step: int, users: int, S: int, P: int, pool: int, cache: str) -> dict[str, str]:
    """The symbols' values."""
    now = _now(step, users, S, P, pool, cache)
    return {"S": f"{S}", "P": f"{P}", "B": f"{len(now.running)}", "L": "Lᵢ"}


def result(step: int, users: int, S: int, P: int, pool: int, cache: str) -> str:
    """Blocks held, and what they would be without sharing."""
    now = _now(step, users, S, P, pool, cache)
    return f"{now.num_live} blocks, instead of {sum(now.named.values())}"


def describe(step: int, users: int, S: int, P: int, pool: int, cache: str) -> str:
    """What the picture shows, in words."""
    now = _now(step, users, S, P, pool, cache)
    told = f"{now.num_waiting} wait for room. " if now.num_waiting else ""
    return (
        f"After step {step}, {len(now.running)} users hold {now.num_live} of {pool} blocks, in "
        f"tables of {sum(now.named.values())} entries. {told}{len(now.next_to_go)} blocks are kept "
        f"in case somebody comes, {now.num_evicted} were evicted so far. Of the prompts' tokens "
        f"{now.found} were found and {now.computed} computed."
    )


def draw(step: int, users: int, S: int, P: int, pool: int, cache: str) -> Figure:
    """The tree above; below it blocks over time, and tokens so far, with and without the cache."""
    fig, whole = plots.figure(height=6.6)
    whole.remove()
    fig.set_layout_engine("none")  # everything has its place: nothing need be measured
    ax, over_time, tokens = map(fig.add_axes, PLACES)
    now = _now(step, users, S, P, pool, cache)
    size = _size(users, S, P, pool, cache)
    tree.draw(ax, now, P, outlined=cache == "radix", size=size)
    names = {
        "hash": "each block found by its hash",
        "radix": "outlined: one node of the radix tree",
    }
    plots.label(ax, title=f"The tree after step {step} ({names[cache]})")
    _draw_blocks(over_time, step, users, S, P, pool, cache)
    _draw_tokens(tokens, now, chat(None, users, S, P, pool)[step - 1])
    return fig


@functools.lru_cache(maxsize=64)
def _size(users: int, S: int, P: int, pool: int, cache: str) -> tuple[int, int]:
    """Most rows and columns of the tree at any step."""
    roots = [tree.grow(moment, P) for moment in chat(cache, users, S, P, pool)]
    nodes = [node for root in roots for node in root.walk()]
    return max(n.row for n in nodes) + 1, max(n.depth for n in nodes) + 1


def _draw_blocks(ax: Axes, step: int, users: int, S: int, P: int, pool: int, cache: str) -> None:
    moments, steps = chat(cache, users, S, P, pool), range(1, STEPS + 1)
    held = [m.num_live for m in moments]
    kept = [len(m.next_to_go) for m in moments]
    colors = (plots.COLORS["kv"], tree.KINDS["cached"][0])
    areas = ax.stackplot(steps, held, kept, colors=colors, labels=("in tables", "kept"))
    plots.mark(areas[0], "S", "L", "B")
    others = chat(None, users, S, P, pool)
    alone = [m.num_live for m in others]
    ax.plot(steps, alone, color=plots.COLORS["baseline"], lw=1.8, label="without a cache")
    ax.axhline(pool, color=plots.COLORS["limit"], lw=1.4, ls="--")
    ax.text(STEPS, pool, "pool ", color=plots.COLORS["limit"], ha="right", va="bottom", fontsize=9)
    ax.axvline(step, color=plots.INK, lw=1.4, ls=":")
    ax.set(xlim=(1, STEPS), ylim=(0, 1.45 * max(pool, 40)))
    now, other = (
        f"{len(m.running)} in {m.num_live}" for m in (moments[step - 1], others[step - 1])
    )
    title = f"Users in blocks: {now}; without a cache {other}"
    plots.label(ax, x="step", y="blocks", title=title)
    ax.title.set_fontsize(11)
    ax.legend(ncols=3, loc="upper left", fontsize=9, frameon=False, columnspacing=1.2)


def _draw_tokens(ax: Axes, now: Moment, alone: Moment) -> None:
    ax.barh(["with", "without"], [now.computed, alone.computed], color=plots.COLORS["prefill"])
    ax.barh(["with"], [now.found], left=[now.computed], color=plots.COLORS["shared"])
    for y, (said, at) in enumerate(
        [(f"{now.computed} computed, {now.found} found", 0), (f"{alone.computed} computed", 0)]
    ):
        ax.text(at, y, f" {said}", va="center", fontsize=9)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    share = now.found / max(1, now.found + now.computed)
    plots.label(ax, x="prompt tokens so far", title=f"{share:.0%} of prompts found")
    ax.title.set_fontsize(11)
