"""The two experiments of chapter 00: what they compute, say and draw, at odd settings too."""

import math

import pytest

from minillm_serve.course.chapter00 import crowd, timeline
from minillm_serve.course.chapter00.crowd import Crowd
from minillm_serve.course.chapter00.timeline import Screen
from minillm_serve.sim import HARDWARE, MODELS, decode_step_time, prefill_time

CARD, MODEL = HARDWARE["A100 80GB"], MODELS["Llama-2-7B"]
PEOPLE = Crowd(CARD, MODEL)


def test_the_wall_is_where_the_formula_explodes() -> None:
    mu = PEOPLE.mu(8, 256)
    assert mu == pytest.approx(8 / (256 * decode_step_time(CARD, MODEL, 8, 512 + 128)))
    assert math.isfinite(PEOPLE.formula(0.999 * mu, 8, 256).wait)
    assert PEOPLE.formula(1.001 * mu, 8, 256).wait == math.inf


def test_a_thousand_people_wait_about_as_long_as_the_formula_says() -> None:
    run = PEOPLE.run(3.0, 8, 256, "poisson")
    assert len(run.wait) == crowd.PEOPLE
    assert run.wait.mean() == pytest.approx(PEOPLE.formula(3.0, 8, 256).wait, rel=0.3)
    assert run.served_at(run.start).max() == 8


def test_bursts_wait_longer_and_even_arrivals_shorter_than_strangers() -> None:
    bursts, strangers, even = (
        PEOPLE.run(3.0, 8, 256, kind).wait.mean() for kind in ("bursts", "poisson", "regular")
    )
    assert bursts > 2 * strangers
    assert even < strangers


def test_a_larger_batch_moves_the_wall_less_than_in_proportion() -> None:
    walls = [PEOPLE.mu(batch, 256) for batch in (1, 8, 64)]
    assert walls[0] < walls[1] < walls[2] < 8 * walls[1]


def test_an_unknown_process_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"arrivals='daily': choose from poisson, bursts, regular"):
        crowd.process("daily", 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"lam": 16.0, "B": 1, "n": 1024},
        {"lam": 0.2, "B": 128, "n": 32},
        {"arrivals": "bursts"},
        {"arrivals": "regular", "lam": 4.4},
    ],
    ids=str,
)
def test_the_crowd_is_drawn_at_every_corner(change: dict[str, object]) -> None:
    experiment = crowd.experiment()
    experiment.set(**crowd.knobs(**change))
    assert experiment.error is None
    said = experiment.describe()
    assert "1000 people wait" in said
    assert "inf" not in said + repr(experiment)
    assert ("more come than leave" in said) == (float(experiment.result()) >= 1)


def test_the_prediction_about_the_crowd_stays_true_when_controls_move() -> None:
    experiment = crowd.experiment()
    asked = experiment.predict.as_text(experiment.values())
    assert "a load of 0.75" in asked
    assert "Answer: more than four times as long." in asked
    experiment.set(lam=12.0)
    assert experiment.predict.as_text(experiment.values()) == asked


def test_the_timeline_is_the_prompt_and_then_the_steps_of_the_roofline() -> None:
    log = Screen(CARD, MODEL, L=512, n=4, B=32).log
    assert log.ttft == pytest.approx(prefill_time(CARD, MODEL, 512))
    steps = [decode_step_time(CARD, MODEL, 32, 512 + i) for i in (1, 2, 3)]
    assert log.itl == pytest.approx(steps)


def test_a_batch_that_does_not_fit_is_called_so() -> None:
    experiment = timeline.experiment(1.3)
    assert "does not fit" not in experiment.describe()
    experiment.set(L=4096, B=128)
    assert experiment.error is None
    assert "such a batch does not fit" in experiment.describe()
    assert experiment.describe().count("GiB") == 2


def test_nothing_that_fits_types_slower_than_the_memory_is_read_once() -> None:
    for card in HARDWARE.values():
        for batch in (1, 2, 4, 8, 16, 32, 64, 128):
            screen = Screen(card, MODEL, L=1024, n=16, B=batch)
            if screen.fits and screen.log.tpot is not None:
                assert screen.log.tpot < card.memory_bytes / card.bandwidth_bytes_s


@pytest.mark.parametrize("preset", timeline.PRESETS)
def test_every_preset_of_the_timeline_draws_and_fits_its_card(preset: str) -> None:
    experiment = timeline.experiment(1.3)
    experiment.preset.value = preset
    assert experiment.error is None
    assert "does not fit" not in experiment.describe()


def test_the_lead_over_the_reader_is_the_ratio_of_the_two_paces() -> None:
    reading = timeline.reading_speed(1.5)
    assert reading == pytest.approx(238 / 60 * 1.5)
    screen = Screen(CARD, MODEL, L=512, n=256, B=32)
    assert screen.log.tpot is not None
    assert timeline.typing_lead(screen, reading) == pytest.approx(1 / screen.log.tpot / reading)
    with pytest.raises(ValueError, match="tokens_per_word is 0"):
        timeline.reading_speed(0)


@pytest.mark.parametrize("make", [crowd.experiment, lambda: timeline.experiment(1.3)])
def test_their_text_and_picture_are_the_same_at_each_run(make: object) -> None:
    """Notebooks are compared by text; without a kernel the picture stands (B142, B154)."""
    first, second = make(), make()  # type: ignore[operator]
    assert repr(first) == repr(second)
    assert first.static_png() == second.static_png()
