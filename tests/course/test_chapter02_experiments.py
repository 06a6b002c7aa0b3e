"""Chapter 02's experiments: what they say is so, and a sequence can be picked."""

from xml.etree import ElementTree

import pytest

from minillm_serve.course.chapter02 import drawing, knob, ledger
from minillm_serve.course.chapter02.memory import Span
from minillm_serve.course.chapter02.traffic import CHAT, MIXES, POLICIES, SIZE, Holder, watch
from minillm_serve.course.linked import FormulaExperiment

TIMES = {
    "cpu": {"contiguous": [1.0, 1.2], "1": [4.0, 3.0], "16": [1.1, 1.5]},
    "torch": {"contiguous": [2.0], "16": [9.0], "256": [8.0]},
}


@pytest.fixture
def experiment() -> ledger.LedgerExperiment:
    made = ledger.experiment()
    assert made.panel is not None
    made.panel.give_up()
    return made


@pytest.fixture
def knob_experiment() -> FormulaExperiment:
    return knob.experiment(TIMES)


def symbols_of(svg: str) -> set[str]:
    """All that parts of a drawing are marked with."""
    root = ElementTree.fromstring(svg)
    return {name for e in root.iter() for name in e.get("data-sym", "").split()}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_ledger_draws_every_policy(experiment: ledger.LedgerExperiment, policy: str) -> None:
    for changes in ({"step": 1}, {"step": 400, "P": 1}, {"P": 256, "seq": 40}):
        experiment.reset()
        experiment.set(policy=policy, **changes)
        assert experiment.error is None


def test_each_symbol_and_each_sequence_is_a_part_of_the_drawing(
    experiment: ledger.LedgerExperiment,
) -> None:
    experiment.set(P=64, step=200)
    running = watch("paged", CHAT, 64)[199].running
    named = {f"seq{place}" for place in range(1, running + 1)}
    assert symbols_of(experiment.picture.svg) == {"B", "L", "P", "kv"} | named


def test_picking_a_sequence_moves_its_control_and_its_arrows(
    experiment: ledger.LedgerExperiment,
) -> None:
    before = experiment.picture.svg
    experiment.picks.picked = "seq7"
    assert experiment.controls["seq"].value == 7
    assert experiment.picture.svg != before
    holders = ledger.look("paged", CHAT, 16, 240)
    assert f"sequence {holders[6].name} has" in experiment.describe()


def test_pointing_at_a_sequence_tells_its_block_table(
    experiment: ledger.LedgerExperiment,
) -> None:
    holder = ledger.look("paged", CHAT, 16, 240)[2]
    table = ", ".join(str(span.start // 16) for span in holder.spans[:16])
    assert f"block table [{table}" in experiment.links.hints["seq3"]
    experiment.set(policy="the longest")
    assert "in one piece, slots" in experiment.links.hints["seq3"]


def test_the_formula_adds_up_to_what_the_sequences_hold() -> None:
    for policy, block_size in (("paged", 16), ("the longest", 512)):
        holders = ledger.look(policy, CHAT, 16, 240)
        formula = sum(-(-one.stored // block_size) * block_size for one in holders)
        now = watch(policy, CHAT, 16)[239].ledger
        assert formula == now.useful + now.reserved + now.internal


def test_the_prediction_asks_for_what_the_picture_shows(
    experiment: ledger.LedgerExperiment,
) -> None:
    assert experiment.predict is not None
    answer = experiment.predict.right_answer(experiment.values())
    assert answer == watch("paged")[239].running
    assert experiment.describe().startswith(f"{answer} sequences in 2 GiB")


def test_a_sequence_is_cut_by_state_in_the_order_of_its_tokens() -> None:
    holder = Holder("x", stored=5, reserved=2, wasted=1, spans=(Span(8, 4), Span(0, 4)))
    assert drawing.states_of(holder) == {
        "useful": [Span(8, 4), Span(0, 1)],
        "reserved": [Span(1, 2)],
        "internal": [Span(3, 1)],
    }


def test_the_drawn_boxes_of_the_memory_cover_it_once() -> None:
    boxes = drawing._boxes(Span(0, SIZE))
    assert sum(width for *_, width in boxes) == SIZE
    assert drawing._boxes(Span(60, 10)) == [(60.0, 0.0, 4.0), (0.0, 1.0, 6.0)]


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("block_size", [1, 4, 16, 32])
def test_half_a_block_is_wasted_as_the_formula_says(mix: str, block_size: int) -> None:
    formula = knob.half_a_block(block_size, knob.mean_length(mix))
    assert knob.seen_waste(mix, block_size) == pytest.approx(formula, abs=0.012)


def test_the_knob_draws_every_block_size_and_says_what_it_costs(
    knob_experiment: FormulaExperiment,
) -> None:
    assert knob_experiment.panel is not None
    knob_experiment.panel.give_up()
    for size in (1, 16, 256):
        knob_experiment.set(P=size)
        assert knob_experiment.error is None
    knob_experiment.set(P=16)
    said = knob_experiment.describe()
    assert "reads in place (cpu): 1.10 times" in said
    assert "copies first (torch): 4.50 times" in said
    assert symbols_of(knob_experiment.picture.svg) == {"P", "L"}
