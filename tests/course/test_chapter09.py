"""Chapter 09: the formula, its experiments at odd settings, the levers, the solver's choice."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from minillm_serve import sim
from minillm_serve.course.chapter09 import knob, levers, pictures, real, symbols, users
from minillm_serve.course.chapter09.levers import LEVERS, Setup
from minillm_serve.course.chapter09.server import SERVERS, TEXTBOOK
from minillm_serve.course.experiment import Experiment
from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.cost import CostModel, Work
from minillm_serve.sim.slo import mean_step


def opened(experiment: Experiment) -> Experiment:
    assert experiment.panel is not None
    experiment.panel.give_up()
    return experiment


def test_the_round_numbers_of_the_texts_come_out() -> None:
    assert TEXTBOOK.seconds(64, 1024) == pytest.approx(0.023)
    assert round(TEXTBOOK.throughput(64, 1024)) == 2783
    assert TEXTBOOK.ceiling(1024) == 4000
    assert TEXTBOOK.half(1024) == 28


@pytest.mark.parametrize("name", [name for name in SERVERS if " on a" in name])
def test_a_preset_server_is_the_packages_roofline(name: str) -> None:
    model, card = name.split(" on ")
    hardware, shape = HARDWARE[card.split(" ", 1)[1]], MODELS[model]
    for batch in (1, 64, 4096):
        for context in (16, 1024, 8192):
            theirs = sim.decode_step_time(hardware, shape, batch, context)
            assert SERVERS[name].seconds(batch, context) == pytest.approx(theirs)


@pytest.mark.parametrize("name", [name for name in SERVERS if " on a" in name])
def test_both_roofs_are_as_high_where_they_meet(name: str) -> None:
    server = SERVERS[name]
    context = round(server.roofs_meet())
    assert server.memory_roof(context) == pytest.approx(server.compute_roof(context), rel=0.01)
    assert server.ceiling(2 * context) == server.memory_roof(2 * context)
    assert server.ceiling(context // 2) == server.compute_roof(context // 2)


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("change", [{"B": 1, "L": 8192}, {"B": 256, "L": 128}], ids=str)
def test_the_knob_is_drawn_at_every_corner(name: str, change: dict[str, int]) -> None:
    experiment = opened(knob.experiment())
    experiment.set(**knob.knobs(server=name, **change))
    assert experiment.error is None
    assert "tokens/s" in experiment.describe()


def test_the_knob_says_what_the_step_waits_for_and_who_bears_it() -> None:
    said = knob.describe(**knob.knobs())
    assert "23.0 ms (3.2 times as long as alone; fast enough for voice and chat)" in said
    assert "2,783 tokens/s, 70% of its ceiling. The step waits for moving bytes" in said
    slow = knob.describe(200, 8192, "Llama-3-8B on an L4")
    assert "too slow for chat" in slow
    assert knob.describe(256, 128, "Llama-3-8B on an A100 80GB").endswith("waits for arithmetic.")


def test_every_symbol_governs_a_part_of_the_drawing() -> None:
    experiment = opened(symbols.experiment())
    root = ElementTree.fromstring(experiment.picture.svg)
    marked = {name for e in root.iter() for name in e.get("data-sym", "").split()}
    assert marked == {"t", "W", "B", "L", "kv", "BW"}


@pytest.mark.parametrize(
    "change",
    [
        {"W": 64, "B": 1, "L": 256, "kv": 64, "BW": 250},
        {"W": 2, "B": 160, "L": 4096, "kv": 1024, "BW": 5000},
    ],
    ids=str,
)
def test_the_symbols_are_drawn_at_every_corner(change: dict[str, int]) -> None:
    experiment = opened(symbols.experiment())
    experiment.set(**change)
    assert experiment.error is None


def test_the_line_of_live_values_ends_in_the_throughput() -> None:
    experiment = symbols.experiment()
    assert repr(experiment).splitlines()[1].endswith("= 2,783 tokens/s")
    assert symbols.live(**symbols.knobs())["t"] == "23.0 ms"


def test_the_answer_of_each_question_is_what_the_pictures_show() -> None:
    doubled = knob.experiment().predict
    assert doubled is not None
    assert doubled.right_answer({}) == pytest.approx(TEXTBOOK.throughput(128, 1024))
    before, after = (symbols.of(**symbols.knobs(L=length)) for length in (1024, 2048))
    assert before.weights / before.bandwidth == after.weights / after.bandwidth
    assert before.ceiling(1024) == 2 * after.ceiling(2048)


def test_the_still_pictures_show_the_servers_numbers() -> None:
    moved = pictures.draw_bytes(TEXTBOOK, 1024).axes[0]
    totals = [float(text.get_text()) for text in moved.texts]
    assert totals == [14.5, 16, 22, 46]  # 14 GiB, and half a GiB for each of 1, 4, 16 and 64
    names = [name for name in SERVERS if "A100" in name]
    panels = pictures.draw_roofs(names).axes
    assert len(panels) == len(names)
    for panel, name in zip(panels, names, strict=True):
        curves = [line for line in panel.lines if line.get_label().startswith("L = ")]
        ends = [float(line.get_ydata()[-1]) for line in curves]
        assert ends == pytest.approx(
            [SERVERS[name].throughput(4096, context) for context in (128, 1024, 8192)]
        )
    curve = pictures.draw_share(0.007).axes[0].lines[0]
    assert curve.get_ydata()[-1] == pytest.approx(100 * (1 - 0.007 / 0.13))


def test_the_solvers_batch_serves_more_voices_than_half_or_twice_of_it() -> None:
    chosen = users.point("voice").max_num_seqs
    seen = users.goodput("voice", [chosen // 2, chosen, 2 * chosen], count=150)
    assert seen[chosen] > 1.05 * seen[chosen // 2]
    assert seen[chosen] > 2 * seen[2 * chosen]


def test_a_promise_of_fewer_ms_a_token_affords_fewer_people() -> None:
    points = [users.point(name) for name in ("voice", "chat", "offline")]
    batches = [point.max_num_seqs for point in points]
    assert batches == sorted(batches)
    assert [point.bound_by for point in points] == ["the promise", "the promise", "memory"]
    line = mean_step(users.COST, users.TRAFFIC)
    assert line.seconds(batches[0]) < users.USERS["voice"].slo.tpot


def small(setup: Setup) -> levers.Seen:
    return levers.run(setup, busy=200, alone=3)


def test_each_lever_does_what_the_table_says() -> None:
    """The claims of the chapter's text, on a shorter trace."""
    batch, kv, weights, prefix, drafts, chunks = (
        (small(lever.off), small(lever.on)) for lever in LEVERS
    )
    for off, on in (batch, kv, weights, prefix, drafts):
        assert on.throughput > 1.05 * off.throughput
    for off, on in (batch, kv):  # alone there is nothing to gain
        assert on.tpot == pytest.approx(off.tpot, rel=0.03)
    assert kv[1].inside > 1.5 * kv[0].inside
    assert batch[1].busy_tpot > 1.3 * batch[0].busy_tpot
    assert weights[1].tpot < 0.4 * weights[0].tpot
    assert prefix[1].ttft < 0.7 * prefix[0].ttft
    assert drafts[1].tpot < 0.6 * drafts[0].tpot
    assert drafts[1].throughput / drafts[0].throughput < drafts[0].tpot / drafts[1].tpot
    assert chunks[1].busy_gap < 0.5 * chunks[0].busy_gap
    assert chunks[1].throughput < chunks[0].throughput
    assert chunks[1].ttft > chunks[0].ttft


def test_a_verdict_names_the_largest_gain_or_the_loss() -> None:
    assert levers._said({"a": 1.2, "b": 1.5}, 0.05) == "yes: 1.50x b"
    assert levers._said({"a": 0.8, "b": 1.01}, 0.05) == "no: 0.80x a"
    assert levers._said({"a": 0.99, "b": 1.01}, 0.05) == "no: as before"


def test_a_disturbed_step_counts_no_longer_than_that_of_a_larger_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = iter([0.0, 0.020, 0.090, 0.030, 0.019, 0.080, 0.031])

    def step(llm: object, batch: int, count: int = 12, *, seed: int = 0) -> tuple[Work, float]:
        return Work.decode(batch, 30), next(taken)

    monkeypatch.setattr(real, "decode_steps", step)
    found = real.measure(None, (1, 4, 8))  # type: ignore[arg-type]
    assert [seconds for _, seconds in found.values()] == [0.019, 0.030, 0.030]


def test_the_measured_picture_says_how_far_the_foretold_ones_are_off() -> None:
    cost = CostModel(HARDWARE["L4"], MODELS["SmolLM2-135M"])
    works = {batch: Work.decode(batch, 30) for batch in (1, 4, 8)}
    steps = {batch: (work, cost.seconds(work)) for batch, work in works.items()}
    steps[4] = works[4], cost.seconds(works[4]) / 1.25
    titles = [ax.get_title(loc="left") for ax in real.draw(steps, cost, (1, 8)).axes]
    assert titles[0] == "Foretold within 25%"


def test_the_committed_record_is_found_from_below_and_missed_in_words(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="bench calibration"):
        real.committed(tmp_path)
    file = tmp_path / real.PATH
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"foretold": []}))
    (tmp_path / "notebooks").mkdir()
    assert real.committed(tmp_path / "notebooks") == {"foretold": []}
