"""Experiment: the memory ledger. Where every byte of the KV memory is, and whose."""
# ruff: noqa: N803 - arguments have the names of the course's symbols

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter02 import drawing
from minillm_serve.course.chapter02.picks import Picks
from minillm_serve.course.chapter02.traffic import (
    CHAT,
    LONGEST,
    MIXES,
    POLICIES,
    SIZE,
    STEPS,
    Holder,
    look,
    watch,
)
from minillm_serve.course.formula import Symbol
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.course.predict import Predict
from minillm_serve.sim import MODELS, format_bytes

PREFIX = "seq"
FORMULA = r"\text{held} = {\sum}_{i=1}^{B} \lceil L_i / P \rceil \cdot P \cdot \mathrm{kv}"
SYMBOLS = {
    "B": Symbol("B", "sequences in memory at once", "As many as fit"),
    "L": Symbol("L_i", "tokens of sequence i", "One more at every step", control="mix"),
    "P": Symbol("P", "tokens a block", "One piece for all of it is one long block"),
    "kv": Symbol(r"\mathrm{kv}", "KV bytes per token", control="model"),
}


class LedgerExperiment(FormulaExperiment):
    """A `FormulaExperiment` in whose drawing a sequence can be picked."""

    def __init__(self, **options: Any) -> None:
        self.picks = Picks(prefix=PREFIX)
        super().__init__(draw, knobs(), formula=FORMULA, symbols=SYMBOLS, **options)
        self.children: tuple[Any, ...] = (*self.children, self.picks)
        self.picks.observe(self._picked, names="picked")

    def _picked(self, change: Any) -> None:
        self.set(seq=int(change["new"].removeprefix(PREFIX)))

    def _refresh_links(self) -> None:
        super()._refresh_links()
        values = self.values()
        block_size = values["P"] if values["policy"] == "paged" else None
        holders = _holders(**values)
        told = {
            f"{PREFIX}{place}": describe_holder(holder, block_size)
            for place, holder in enumerate(holders, 1)
        }
        self.links.hints = {**self.links.hints, **told}


def experiment() -> LedgerExperiment:
    """The experiment, ready for the last line of a cell."""
    return LedgerExperiment(
        title="The memory ledger",
        live=live,
        result=result,
        describe=describe,
        predict=_question(),
    )


def knobs() -> dict[str, Any]:
    """Its controls."""
    return {
        "policy": controls.choice("hand out", list(POLICIES), "paged"),
        "P": controls.powers_of_two("block size P", 1, 256, 16, unit="tokens"),
        "mix": controls.choice("people", list(MIXES), CHAT),
        "step": controls.integer("after step", 1, STEPS, 240),
        "model": controls.choice("model", list(MODELS), "Llama-2-7B"),
        "seq": controls.integer("sequence", 1, 40, 3, tip="Whose block table is shown"),
    }


def _question() -> Predict:
    few, many = (watch(policy)[239] for policy in ("the longest", "paged"))
    return Predict(
        f"{SIZE:,} slots hold {few.running} conversations of up to {LONGEST} tokens if each gets "
        "the longest. The same people, the same memory, blocks of 16: how many are in it at once, "
        "after 240 steps?",
        answer=many.running,
        unit="sequences",
        within=0.25,
        explain=f"{1 - few.ledger.useful / SIZE:.0%} of the memory held no token before, and "
        f"{1 - many.ledger.useful / SIZE:.0%} does not now.",
    )


def _holders(policy: str, P: int, mix: str, step: int, **_: Any) -> tuple[Holder, ...]:
    return look(policy, mix, P, step)


def _kv(model: str) -> int:
    """Bytes of one token in 16 bits."""
    return MODELS[model].kv_bytes_per_token(2)


def live(policy: str, P: int, mix: str, step: int, model: str, seq: int) -> dict[str, str]:
    """The symbols' values."""
    piece = {"the longest": f"{LONGEST}", "paged": f"{P}"}.get(policy, "asked")
    return {
        "B": str(watch(policy, mix, P)[step - 1].running),
        "L": "Lᵢ",
        "P": "Lᵢ at its end" if policy.startswith("the true") else piece,
        "kv": format_bytes(_kv(model), 1),
    }


def result(policy: str, P: int, mix: str, step: int, model: str, seq: int) -> str:
    """What all sequences together hold."""
    now = watch(policy, mix, P)[step - 1].ledger
    held = now.useful + now.reserved + now.internal
    return f"{format_bytes(held * _kv(model), 2)}, {now.useful / held:.0%} of it useful"


def describe(policy: str, P: int, mix: str, step: int, model: str, seq: int) -> str:
    """What the picture shows, in words."""
    moment = watch(policy, mix, P)[step - 1]
    useful, reserved, internal, external, free = (
        f"{100 * amount / SIZE:.0f} %" for amount in moment.ledger.amounts()
    )
    holders = look(policy, mix, P, step)
    chosen = holders[min(seq, len(holders)) - 1]
    return (
        f"{moment.running} sequences in {format_bytes(SIZE * _kv(model))}: {useful} useful, "
        f"{reserved} reserved, {internal} never filled, {external} free in pieces too small, "
        f"{free} free. {moment.finished} served so far. "
        f"{describe_holder(chosen, P if policy == 'paged' else None)}."
    )


def describe_holder(holder: Holder, block_size: int | None) -> str:
    """One sequence and where it lies: its block table, or its one piece."""
    told = f"sequence {holder.name} has {holder.stored} tokens"
    if block_size is None:
        (piece,) = holder.spans
        return f"{told} in one piece, slots {piece.start} to {piece.end - 1}"
    table = [span.start // block_size for span in holder.spans]
    shown = ", ".join(map(str, table[:16])) + (", ..." if len(table) > 16 else "")
    return f"{told}, block table [{shown}]"


def draw(policy: str, P: int, mix: str, step: int, model: str, seq: int) -> Figure:
    """Every policy's ledger; below it the sequences, and the memory that they point into."""
    fig, whole = plots.figure(height=6.9)
    whole.remove()
    parts: Any = fig.subfigures(2, 1, height_ratios=[1, 2.3])
    above, below = parts
    rows, memory = below.subplots(1, 2, width_ratios=[1.25, 1])
    moments = {name: watch(name, mix, P)[step - 1] for name in POLICIES}
    drawing.draw_ledgers(above.subplots(), moments, policy, _kv(model))
    holders = look(policy, mix, P, step)
    place = min(seq, len(holders)) - 1
    block_size = P if policy == "paged" else None
    drawing.draw_sequences(rows, holders, place, block_size)
    drawing.draw_memory(memory, holders, place)
    drawing.draw_table(fig, rows, memory, holders, place)
    return fig
