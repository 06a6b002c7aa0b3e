"""Chapter 07 without a model: the rule, the page of text and its experiment say what is so."""

import math
from xml.etree import ElementTree

import pytest

from minillm_serve.core import FixedLengths, StepCosts
from minillm_serve.core.speculation import Curve
from minillm_serve.course import plots
from minillm_serve.course.chapter07 import experiment, page, pays, pictures, rule
from minillm_serve.course.chapter07.costs import Line, draw_rows
from minillm_serve.course.chapter07.replay import Step, Tally, replay
from minillm_serve.course.chapter07.watch import Answer
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.runtime.sampling.inversion import invert
from minillm_serve.runtime.spec.accept import accept
from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.cost import CostModel, Work
from minillm_serve.sim.speculation import (
    by_costs,
    by_model,
    by_ratio,
    expected_tokens,
    speedup,
)

WORDS = ["mat", "sofa", "rug", "roof", "moon"]
P, Q = [0.40, 0.30, 0.15, 0.10, 0.05], [0.20, 0.45, 0.25, 0.05, 0.05]
#: An answer of ten tokens; guesses of its next three, of which those from 4 and 7 go wrong.
TOKENS = list(range(10))
GUESSES = [(), (1, 2, 3), (2, 3, 4), (3, 99, 5), (4, 5, 6), (), (6, 7, 8), (99, 8, 9), (8,), ()]
TEXT = ["def", " f", "(", "x", "):", "\n", "    ", "return", " x", "\n"]


def answer(guesses: list[tuple[int, ...]]) -> Answer:
    return Answer([0], TOKENS, {"trained head": guesses, "nobody": [()] * len(TOKENS)})


@pytest.fixture
def widget() -> FormulaExperiment:
    answers = {"code and format": answer(GUESSES), "open-ended": answer([()] * len(TOKENS))}
    texts = dict(enumerate(TEXT)) | {99: " or\n"}
    shown = experiment.GuessThenCheck(answers, texts.__getitem__, ["trained head", "nobody"])
    made = shown.experiment()
    assert made.panel is not None
    made.panel.give_up()
    return made


def symbols_of(svg: str) -> set[str]:
    """All that parts of a drawing are marked with."""
    root = ElementTree.fromstring(svg)
    return {name for e in root.iter() for name in e.get("data-sym", "").split()}


def test_a_replay_keeps_drafts_up_to_the_first_wrong_one_and_adds_a_token_b56() -> None:
    assert replay(TOKENS, GUESSES, 3) == [
        Step(1, 3, (1, 2, 3), 3, 4),
        Step(5, 3, (), 0, 5),
        Step(6, 3, (6, 7, 8), 3, 9),
    ]
    first, second, *_ = replay(TOKENS, GUESSES, 2)
    assert (first.kept, first.token, second.start) == (2, 3, 4)
    wrong = replay(TOKENS, [(), (), (), (3, 99, 5), *[()] * 6], 3)
    assert (wrong[2].kept, wrong[2].token) == (1, 4)


def test_without_drafts_a_step_gives_one_token() -> None:
    steps = replay(TOKENS, GUESSES, 0)
    assert [step.token for step in steps] == TOKENS[1:]
    assert Tally.of(steps).tokens_per_step == 1
    assert Tally.of(steps).alpha == 0


def test_at_the_end_there_is_no_room_for_drafts_that_nobody_wants_b65() -> None:
    steps = replay(TOKENS, [(), *[(50, 51, 52)] * 9], 3)
    assert [step.room for step in steps] == [3, 3, 3, 3, 3, 3, 2, 1, 0]
    assert steps[-1].end == len(TOKENS)


def test_alpha_counts_places_before_which_all_was_right_and_a_missing_guess_as_wrong() -> None:
    tally = Tally.of(replay(TOKENS, GUESSES, 3))
    assert (tally.steps, tally.tokens, tally.drafts, tally.kept) == (3, 9, 6, 6)
    assert tally.tried == 3 + 1 + 3
    assert tally.alpha == pytest.approx(6 / 7)
    assert tally.tokens_per_step == 3
    assert tally.drafts_per_step == 2


def test_the_bars_are_what_the_rule_does() -> None:
    alpha = rule.overlap(P, Q)
    assert alpha == pytest.approx(0.75)
    assert sum(rule.residual(P, Q)) == pytest.approx(1 - alpha)
    fig = rule.draw_bars(WORDS, P, Q)
    assert fig.axes[1].get_title(loc="left") == "Of the drafts 75% stay"
    tops = [bar.get_y() + bar.get_height() for bar in fig.axes[2].patches[len(P) :]]
    assert tops == pytest.approx(P)


def test_the_rule_passes_the_test_that_a_tempting_wrong_one_fails_b59() -> None:
    def from_p(p, q, drafts, lengths, draws):  # type: ignore[no-untyped-def]
        kept = draws[:, 0, :1] * q[:, 0].gather(1, drafts) < p[:, 0].gather(1, drafts)
        other = invert(p[:, 0], draws[:, 0, 1])[:, None]
        return other.where(~kept, drafts), kept[:, 0].long()

    right, wrong = (rule.outcomes(one, P, Q, 20_000) for one in (accept, from_p))
    assert sum(right) == sum(wrong) == 20_000
    assert rule.chi_square(right, P)[1] > 0.001
    assert rule.chi_square(wrong, P)[1] < 1e-9
    lost = 1 - rule.overlap(P, Q)
    for count, p, q in zip(wrong, P, Q, strict=True):
        assert count / 20_000 == pytest.approx(min(p, q) + lost * p, abs=0.015)
    fig = rule.draw_outcomes(WORDS, P, {"right": right, "wrong": wrong})
    titles = [ax.get_title(loc="left") for ax in fig.axes]
    assert titles == ["right: could be p", "wrong: is not p"]


def test_chi_square_knows_its_table() -> None:
    assert rule.chi_square([10, 10], [0.5, 0.5]) == (0, 1)
    statistic, chance = rule.chi_square([18, 12], [0.5, 0.5])
    assert statistic == pytest.approx(1.2)
    assert chance == pytest.approx(math.erfc(math.sqrt(0.6)))
    # Four degrees of freedom: e^(-x/2) (1 + x/2). 9.488 is the usual table's 5 %.
    statistic, chance = rule.chi_square_of_two([10, 20, 30, 20, 20], [20, 20, 20, 25, 15])
    assert chance == pytest.approx(math.exp(-statistic / 2) * (1 + statistic / 2))
    assert rule._tail(9.488, 4) == pytest.approx(0.05, abs=1e-4)


def test_a_page_says_of_each_token_where_it_came_from() -> None:
    steps = replay(TOKENS, GUESSES, 3)[:1]
    marks = page.marks(TOKENS, steps, str)
    assert [(mark.kind, mark.text) for mark in marks] == [
        ("own", "0"), ("kept", "1"), ("kept", "2"), ("kept", "3"), ("instead", "4"),
    ]  # fmt: skip
    wrong = [(), (), (), (3, 99, 5), *[()] * 6]
    marks = page.marks(TOKENS, replay(TOKENS, wrong, 3)[:3], str)
    kinds = ["own", "own", "own", "kept", "wrong", "behind", "instead"]
    assert [mark.kind for mark in marks] == kinds
    assert [mark.text for mark in marks] == ["0", "1", "2", "3", "99", "5", "4"]


def test_lines_end_where_the_text_says_and_at_the_margin_but_not_where_it_was_struck_out() -> None:
    placed = page.lay_out([page.Mark("own", "a\nb"), page.Mark("wrong", "\nc")])
    assert [(one.text, one.line, one.column) for one in placed] == [
        ("a", 0, 0), ("↵", 0, 1), ("b", 1, 0), ("↵", 1, 1), ("c", 1, 2),
    ]  # fmt: skip
    word = page.Mark("own", " word")
    placed = page.lay_out([word] * (page.COLUMNS // 5 + 1))
    assert placed[-1].text == "word"
    assert (placed[-1].line, placed[-1].column) == (1, 0)
    assert all(one.column + len(one.text) <= page.COLUMNS for one in placed)


def test_the_experiment_draws_the_ends_of_all_its_controls(widget: FormulaExperiment) -> None:
    for changes in (
        {"step": 1},
        {"step": 9, "k": 0},
        {"k": 5, "drafter": "nobody"},
        {"kind": "open-ended", "step": 9},
    ):
        widget.reset()
        widget.set(**changes)
        assert widget.error is None, changes


def test_the_experiment_says_what_was_counted(widget: FormulaExperiment) -> None:
    widget.set(step=1, k=3)
    tally = Tally.of(replay(TOKENS, GUESSES, 3))
    assert widget.result() == f"{expected_tokens(tally.alpha, 3):.2f} tokens a step; counted: 3.00"
    assert "Step 1: 3 drafts, of which 3 were right" in widget.describe()
    assert "4 tokens so far; plain decoding would be at step 4" in widget.describe()
    widget.set(step=9)  # after the last step nothing changes any more
    assert "Step 3: " in widget.describe()


def test_each_symbol_is_a_part_of_the_drawing(widget: FormulaExperiment) -> None:
    assert symbols_of(widget.picture.svg) == {"alpha", "k"}


def test_each_control_alone_changes_the_picture(widget: FormulaExperiment) -> None:
    widget.set(step=2)
    start, first = widget.values(), widget.picture.svg
    for name, value in {"step": 1, "kind": "open-ended", "drafter": "nobody", "k": 2}.items():
        widget.set(**{**start, name: value})
        assert widget.picture.svg != first, name


def test_the_prediction_asks_for_what_the_picture_shows(widget: FormulaExperiment) -> None:
    assert widget.predict is not None
    answer = widget.predict.right_answer(widget.values())
    assert f"takes {answer} steps instead of" in widget.describe()


def test_its_text_and_picture_are_the_same_at_each_run(widget: FormulaExperiment) -> None:
    """Without a kernel the picture stands (B142, B154)."""
    assert repr(widget) == repr(widget)
    assert widget.static_png() == widget.static_png()


def test_a_line_through_times_is_the_nearest_one() -> None:
    exact = Line.through({1: 5.0, 2: 7.0, 16: 35.0})
    assert exact == pytest.approx((3.0, 2.0))
    assert exact.seconds(4) == pytest.approx(11.0)


def test_pictures_state_what_they_show() -> None:
    flat = Line(1.0, 0.1)
    times = {rows: flat.seconds(rows) for rows in (1, 2, 5, 16)}
    here, card = draw_rows(times, flat, by_ratio(0.01), "a card").axes
    assert here.get_title(loc="left") == "Here 4 drafts make it 1.36 steps"
    assert card.get_title(loc="left") == "a card: 1.040 steps"
    step = pictures.draw_step(["a"], ["b", "c", "x"], ["b", "c", "d", "e"]).axes[0]
    assert step.get_title(loc="left") == "One step: 3 guesses, 2 of them right, 3 new tokens"
    exits = pictures.draw_exits({10: 0.1, 20: 0.4}, 30, (2.0, 0.7)).axes[0]
    assert exits.get_title(loc="left") == "The head guesses as well as 25 of the 30 layers"
    chosen = pictures.draw_lengths({"code": {1: 5.0, 4: 2.0}}, 8).axes[0]
    assert chosen.get_title(loc="left") == "From 5.0 drafts alone to 2.0 among 4"
    assert list(chosen.lines[0].get_ydata()) == [5.0, 2.0]


def test_speedups_are_drawn_as_the_closed_form_has_them() -> None:
    rows = Curve([(1, 1.0), (64, 2.0)])
    costs = {name: by_costs(StepCosts(rows, rows)) for name in pays.COLORS}
    points = {("code", "n-gram"): (0.8, 2.0), ("open", "early exit"): (0.1, 0.9)}
    with plots.style():
        alpha = pays.draw_alpha(costs, points, costs, "a card", 4).axes
        one = costs["n-gram"]
        batch = pays.draw_batch(one, {"four": {1: 2.0}}, one, {"four": {1: 3.0}}, "a", k=4).axes
    assert alpha[0].get_title(loc="left") == "Here, k = 4: measured up to 2.0 times"
    assert alpha[1].lines[0].get_ydata()[-1] == pytest.approx(5 / rows(5))
    assert batch[0].lines[0].get_ydata()[0] == pytest.approx(expected_tokens(0.5, 4) / rows(5))


def test_an_engine_over_a_stopwatch_speeds_up_as_the_closed_form_says() -> None:
    card = CostModel(HARDWARE["H200 SXM"], MODELS["Llama-3-8B"])
    price = by_model(card, context=550, draft_cost=0.05)
    for batch in (4, 64):
        plain, drafted = (
            pays.simulated(card, batch, lengths, acceptance=0.7, draft_cost=0.05)
            for lengths in (None, FixedLengths(4))
        )
        assert drafted / plain == pytest.approx(speedup(0.7, 4, price, batch), rel=0.08)
    certain = pays.simulated(card, 4, FixedLengths(4), acceptance=1.0, draft_cost=0.0)
    assert certain == pytest.approx(5 * 4 / card.seconds(Work.verify(4, 4, 640)), rel=0.03)


def test_a_drafter_s_share_of_a_model_is_that_of_its_matrices() -> None:
    model = MODELS["Llama-3-8B"]
    assert pays.share_of(model, model.num_layers) == 1
    head = model.vocab_size * model.hidden_size
    half = (model.matmul_parameters - head) / 2 + head
    assert pays.share_of(model, 16) == pytest.approx(half / model.matmul_parameters)
    assert pays.share_of(model, 1, pays.DRAFT_VOCABULARY) < 0.05
