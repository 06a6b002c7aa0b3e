"""Experiments without a browser: values, errors, predictions, and what static views get."""

import io
from typing import Any

import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from PIL import Image

from minillm_serve.course import Experiment, Predict, controls, plots
from minillm_serve.course.experiment import CUSTOM, ERROR_MARK
from minillm_serve.course.render import to_png

LIVE = "application/vnd.jupyter.widget-view+json"


def draw(batch: int, context: int) -> Figure:
    """A line as high as the product."""
    fig, ax = plots.figure(height=2)
    ax.plot([0, batch], [0, batch * context])
    plots.label(ax, x="batch size", y="tokens", title="Product")
    return fig


def knobs() -> dict[str, Any]:
    """Two controls."""
    return {
        "batch": controls.integer("batch size B", 1, 64, 8),
        "context": controls.powers_of_two("context L", 1, 1024, 64, unit="tokens"),
    }


def describe(batch: int, context: int) -> str:
    """The product in words."""
    return f"{batch * context} tokens."


def make(**options: Any) -> Experiment:
    """The experiment that most tests use."""
    return Experiment(draw, knobs(), title="Product", describe=describe, **options)


def test_moving_a_control_redraws_once_and_updates_the_caption() -> None:
    experiment = make()
    before, drawn = experiment.picture.value, experiment.figures_drawn
    experiment.controls["batch"].value = 9
    assert experiment.picture.value != before
    assert experiment.figures_drawn == drawn + 1
    assert experiment.caption.value == "576 tokens."


def test_the_picture_is_what_draw_returns_for_the_values() -> None:
    experiment = make()
    experiment.set(batch=3, context=16)
    with plots.style():
        assert experiment.picture.value == to_png(draw(3, 16))


def test_setting_several_controls_draws_once() -> None:
    experiment = make()
    drawn = experiment.figures_drawn
    experiment.set(batch=2, context=2)
    assert experiment.figures_drawn == drawn + 1


def test_setting_an_unknown_control_names_it_and_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"no control \['depth'\].*'batch', 'context'"):
        make().set(depth=3)


def test_the_reset_button_puts_every_control_back() -> None:
    experiment = make()
    experiment.set(batch=64, context=1)
    experiment.reset_button.click()
    assert experiment.values() == {"batch": 8, "context": 64}


def test_presets_set_their_controls_and_name_themselves() -> None:
    experiment = make(presets={"small": {"batch": 1}, "large": {"batch": 64, "context": 1024}})
    assert experiment.preset is not None
    assert experiment.preset.value == CUSTOM
    drawn = experiment.figures_drawn
    experiment.preset.value = "large"
    assert experiment.values() == {"batch": 64, "context": 1024}
    assert experiment.figures_drawn == drawn + 1
    experiment.controls["batch"].value = 63
    assert experiment.preset.value == CUSTOM
    experiment.controls["batch"].value = 1
    assert experiment.preset.value == "small"


def test_a_preset_for_a_control_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"preset 'x' sets \['depth'\]"):
        make(presets={"x": {"depth": 1}})


def test_draw_is_given_prediction_and_preset_if_it_asks_for_them() -> None:
    seen: dict[str, Any] = {}

    def curious(batch: int, prediction: Any = None, preset: Any = None) -> Figure:
        seen.update(prediction=prediction, preset=preset)
        return draw(batch, 1)

    experiment = Experiment(
        curious,
        {"batch": controls.integer("B", 1, 8, 2)},
        presets={"two": {"batch": 2}},
        predict=Predict("How many?", answer=2),
    )
    assert seen == {"prediction": None, "preset": "two"}
    assert experiment.panel is not None
    experiment.panel.entry.value = "5"
    experiment.panel.commit_button.click()
    assert seen["prediction"] == 5.0


def test_b152_an_exception_in_draw_is_shown_and_kept_and_passes_away() -> None:
    def fragile(batch: int) -> Figure:
        if batch > 4:
            raise ValueError(f"batch {batch} <is> too large")
        return draw(batch, 1)

    experiment = Experiment(fragile, {"batch": controls.integer("B", 1, 8, 2)})
    experiment.controls["batch"].value = 5
    assert isinstance(experiment.error, ValueError)
    assert "batch 5 &lt;is&gt; too large" in experiment.problem.value
    assert "fragile" in experiment.problem.value  # the traceback says where
    assert experiment.picture.layout.display == "none"
    assert repr(experiment).startswith(ERROR_MARK)
    assert "image/png" not in experiment._repr_mimebundle_()
    experiment.controls["batch"].value = 2
    assert experiment.error is None
    assert experiment.problem.value == ""
    assert experiment.picture.layout.display == ""


def test_b152_an_exception_in_an_answer_is_kept_too() -> None:
    def answer(**values: int) -> float:
        raise ZeroDivisionError("no requests")

    experiment = make(predict=Predict("How many?", answer=answer))
    assert experiment.panel is not None
    experiment.panel.show_button.click()
    assert isinstance(experiment.error, ZeroDivisionError)
    assert "no requests" in experiment.panel.feedback.value


def test_a_draw_that_returns_no_figure_is_told_what_to_return() -> None:
    experiment = Experiment(lambda batch: None, {"batch": controls.integer("B", 1, 8, 2)})  # type: ignore[arg-type, return-value]
    assert "end it with `return fig`" in str(experiment.error)


def test_figures_made_with_pyplot_do_not_pile_up() -> None:
    def with_pyplot(batch: int) -> Figure:
        fig, ax = pyplot.subplots()
        ax.plot([batch])
        return fig

    before = len(pyplot.get_fignums())
    experiment = Experiment(with_pyplot, {"batch": controls.integer("B", 1, 64, 2)})
    for batch in range(1, 10):
        experiment.controls["batch"].value = batch
    assert len(pyplot.get_fignums()) == before


def test_the_picture_stays_hidden_until_the_learner_commits() -> None:
    experiment = make(predict=Predict("How many?", answer=512, unit="tokens", explain="B x L."))
    assert experiment.panel is not None
    assert experiment.picture.layout.display == "none"
    assert experiment.picture.value == b""
    assert experiment.caption.value == ""
    experiment.controls["batch"].value = 9  # moving a control does not reveal it either
    assert experiment.picture.value == b""
    experiment.controls["batch"].value = 8
    experiment.panel.entry.value = "500"
    experiment.panel.commit_button.click()
    assert experiment.prediction == 500.0
    assert experiment.revealed
    assert experiment.picture.layout.display == ""
    assert experiment.caption.value == "512 tokens."
    assert "right, it is <b>512 tokens</b>. B x L." in experiment.panel.feedback.value


def test_a_prediction_that_is_no_number_is_answered_and_not_taken() -> None:
    experiment = make(predict=Predict("How many?", answer=512))
    assert experiment.panel is not None
    experiment.panel.entry.value = "lots"
    experiment.panel.commit_button.click()
    assert "lots" in experiment.panel.feedback.value
    assert not experiment.revealed


@pytest.mark.parametrize(("choice", "mark"), [("more", "✓"), ("fewer", "✗")])
def test_a_choice_can_be_predicted(choice: str, mark: str) -> None:
    predict = Predict("More or fewer?", answer="more", choices=["more", "fewer"])
    experiment = make(predict=predict)
    assert experiment.panel is not None
    experiment.panel.commit_button.click()
    assert experiment.panel.feedback.value == "choose one of the answers first"
    experiment.panel.entry.value = choice
    experiment.panel.commit_button.click()
    assert experiment.panel.feedback.value.startswith(mark)


def test_the_question_can_be_asked_again() -> None:
    experiment = make(predict=Predict("How many?", answer=512))
    assert experiment.panel is not None
    experiment.panel.show_button.click()
    assert "Answer: <b>512</b>" in experiment.panel.feedback.value
    experiment.panel.restart()
    assert experiment.panel.entry.value == ""
    assert experiment.panel.buttons.layout.display == ""


def test_an_answer_that_is_no_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="answer='both' is not among"):
        Predict("?", answer="both", choices=["a", "b"])


def test_an_experiment_without_controls_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one control"):
        Experiment(lambda: draw(1, 1), {})


def test_b154_static_views_get_a_revealed_picture_with_its_settings() -> None:
    experiment = make(predict=Predict("How many?", answer=512, unit="tokens"))
    bundle = experiment._repr_mimebundle_()
    assert bundle[LIVE]["model_id"] == experiment.model_id
    picture = Image.open(io.BytesIO(bundle["image/png"]))
    assert picture.width == 946
    assert picture.height > 2 * plots.DPI  # the header stands above the drawing
    assert "Predict first: How many?" in bundle["text/plain"]
    assert "batch size B = 8 · context L (tokens) = 64" in bundle["text/plain"]
    assert not experiment.revealed  # showing it elsewhere does not spoil the live one


def test_b142_b145_two_experiments_alike_have_the_same_text_and_bytes() -> None:
    first, second = make()._repr_mimebundle_(), make()._repr_mimebundle_()
    assert first["text/plain"] == second["text/plain"]
    assert first["image/png"] == second["image/png"]
    assert "0x" not in first["text/plain"]


@pytest.mark.parametrize(("low", "high", "value"), [(1, 64, 3), (3, 64, 4), (0, 64, 1), (8, 64, 4)])
def test_a_slider_over_powers_of_two_refuses_other_numbers(low: int, high: int, value: int) -> None:
    with pytest.raises(ValueError, match=r"power of two|not between"):
        controls.powers_of_two("B", low, high, value)


def test_controls_say_their_value_as_they_show_it() -> None:
    formats = controls.choice("format", {"fp16": 2, "int8": 1}, 2)
    assert controls.shown_value(formats) == "fp16"
    assert controls.shown_value(controls.powers_of_two("L", 1, 4096, 4096)) == "4,096"
    assert controls.shown_value(controls.integer("L", 1, 10_000, 8192)) == "8,192"
    assert controls.shown_value(controls.switch("paged", True)) == "yes"
    assert controls.shown_value(controls.real("alpha", 0, 1, 0.25)) == "0.25"
