"""The course's widgets in a real JupyterLab, by mouse and by keyboard."""

import base64
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, expect

from minillm_serve.course import plots
from minillm_serve.course.lab_server import LabServer
from minillm_serve.course.render import to_png
from tests.browser import small_notebook
from tests.browser.lab_page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

READ_IMAGE = """async image => {
  const bytes = new Uint8Array(await (await fetch(image.src)).arrayBuffer());
  return btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ''));
}"""


def lit(scope: Locator, selector: str) -> bool:
    """Whether any element of `scope` fitting `selector` is lit."""
    return scope.locator(f"{selector}.mls-lit").count() > 0


def expected_picture(batch: int) -> bytes:
    """The PNG that the small notebook's first experiment must show at this value."""
    names: dict[str, Any] = {}
    exec(f"{small_notebook.IMPORTS}\n{small_notebook.KNOB}", names)
    with plots.style():
        return to_png(names["draw_knob"](batch))


def test_a_slider_moved_by_keyboard_settles_at_the_picture_of_its_final_value(
    live: LabPage,
) -> None:
    experiment = live.experiment("One knob")
    image = experiment.locator("img")
    before = image.get_attribute("src")
    live.press(experiment.locator(".noUi-handle"), *["ArrowRight"] * 6)
    expect(experiment).to_contain_text("B = 14 makes 14 tokens.")
    expect(experiment.locator(".widget-readout")).to_have_text("14")
    assert image.get_attribute("src") != before
    assert base64.b64decode(image.evaluate(READ_IMAGE)) == expected_picture(14)


def test_arrow_keys_on_a_control_do_not_move_labs_own_cell_selection(live: LabPage) -> None:
    handle = live.experiment("Linked").locator(".sym-N .noUi-handle")
    active = "() => window.jupyterapp.shell.currentWidget.content.activeCellIndex"
    handle.focus()
    before = live.page.evaluate(active)
    live.press(handle, "ArrowUp", "ArrowDown", "ArrowUp", "x", "m")
    assert live.page.evaluate(active) == before
    cells = live.page.evaluate("() => window.jupyterapp.shell.currentWidget.model.cells.length")
    assert cells == len(small_notebook.CELLS) + 1


def test_reset_puts_the_picture_back(live: LabPage) -> None:
    experiment = live.experiment("One knob")
    live.press(experiment.locator(".noUi-handle"), "End")
    expect(experiment).to_contain_text("B = 64 makes")
    live.press(experiment.get_by_role("button", name="Reset"), "Enter")
    expect(experiment).to_contain_text("B = 8 makes 8 tokens.")


def test_the_picture_is_hidden_until_the_learner_commits_to_a_number(live: LabPage) -> None:
    experiment = live.experiment("Predict it")
    expect(experiment.locator("img")).to_be_hidden()
    expect(experiment).not_to_contain_text("makes 20 tokens")
    commit = experiment.get_by_role("button", name="Commit my prediction")
    experiment.locator("input[type=text]").fill("many")
    commit.click()
    expect(experiment).to_contain_text("'many' is not a number")
    experiment.locator("input[type=text]").fill("25")
    live.press(commit, "Enter")
    expect(experiment).to_contain_text("You predicted 25 tokens; it is 20 tokens")
    expect(experiment.locator("img")).to_be_visible()
    expect(experiment).to_contain_text("B = 20 makes 20 tokens.")


def test_b152_an_error_in_the_drawing_is_shown_where_the_picture_was(live: LabPage) -> None:
    experiment = live.experiment("Broken")
    live.press(experiment.locator(".noUi-handle"), "ArrowRight")
    expect(experiment.get_by_role("alert")).to_contain_text("ValueError: no picture for 3")
    expect(experiment.locator("img")).to_be_hidden()
    live.press(experiment.locator(".noUi-handle"), "ArrowLeft")
    expect(experiment.locator("img")).to_be_visible()
    expect(experiment.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize(("symbol", "other"), [("N", "H_kv"), ("H_kv", "N")])
def test_pointing_at_a_symbol_lights_its_control_and_its_part_of_the_drawing(
    live: LabPage, symbol: str, other: str
) -> None:
    experiment = live.experiment("Linked")
    experiment.locator(f'.mls-formula [data-sym="{symbol}"]').hover()
    assert lit(experiment, f".sym-{symbol}")
    assert lit(experiment, f'svg [data-sym="{symbol}"]')
    assert not lit(experiment, f".sym-{other}")
    assert not lit(experiment, f'svg [data-sym="{other}"]')
    live.page.mouse.move(2, 2)
    expect(experiment.locator(".mls-lit")).to_have_count(0)


def test_pointing_at_a_control_or_a_part_lights_the_symbol(live: LabPage) -> None:
    experiment = live.experiment("Linked")
    experiment.locator(".sym-N .widget-label").hover()
    assert lit(experiment, '.mls-formula [data-sym="N"]')
    assert lit(experiment, 'svg [data-sym="N"]')
    experiment.locator('svg [data-sym="H_kv"]').first.hover()
    assert lit(experiment, '.mls-formula [data-sym="H_kv"]')
    assert lit(experiment, ".sym-H_kv")
    assert not lit(experiment, ".sym-N")


def test_the_tab_key_reaches_symbols_and_lights_what_they_govern(live: LabPage) -> None:
    experiment = live.experiment("Linked")
    experiment.locator('.mls-formula [data-sym="N"]').focus()
    assert lit(experiment, ".sym-N")
    expect(experiment.locator(".mls-hint")).to_contain_text("N: layers = ")
    live.page.keyboard.press("Tab")
    assert lit(experiment, ".sym-H_kv")
    assert lit(experiment, 'svg [data-sym="H_kv"]')
    assert not lit(experiment, ".sym-N")
    live.page.keyboard.press("Enter")  # goes to the control
    assert experiment.locator(".sym-H_kv .noUi-handle").evaluate(
        "e => e === document.activeElement"
    )
    assert lit(experiment, '.mls-formula [data-sym="H_kv"]')


def test_a_focused_control_keeps_its_symbol_lit_while_the_drawing_is_redrawn(
    live: LabPage,
) -> None:
    experiment = live.experiment("Linked")
    live.press(experiment.get_by_role("button", name="Reset"), "Enter")
    expect(experiment).to_contain_text("512 bytes.")
    live.press(experiment.locator(".sym-N .noUi-handle"), "ArrowRight")
    expect(experiment).to_contain_text("528 bytes.")
    expect(experiment.locator(".mls-live")).to_contain_text("2·33·8=528 B")
    assert lit(experiment, '.mls-formula [data-sym="N"]')
    assert lit(experiment, 'svg [data-sym="N"]')


def test_a_part_of_the_drawing_can_be_reached_by_keyboard(live: LabPage) -> None:
    experiment = live.experiment("Linked")
    part = experiment.locator('svg [data-sym="N"][tabindex]')
    assert "N" in (part.get_attribute("aria-label") or "")
    part.focus()
    assert lit(experiment, ".sym-N")


def test_a_wrong_answer_given_by_keyboard_is_explained_and_may_be_changed(live: LabPage) -> None:
    quiz = live.page.locator(".mls-quiz")
    first = quiz.locator("fieldset").first
    live.press(first.locator("input").first, "Space", "Enter")
    expect(first).to_contain_text("Not so. Queries are not cached.")
    expect(quiz).to_contain_text("0 of 2 right")
    live.page.keyboard.press("ArrowDown")
    live.page.keyboard.press("Tab")
    live.page.keyboard.press("Enter")  # the Check button
    expect(first).to_contain_text("Right. Several queries share one.")
    expect(quiz).to_contain_text("1 of 2 right")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_b154_a_notebook_that_was_not_run_shows_pictures_and_no_errors(
    context: BrowserContext, lab_server: LabServer, theme: str
) -> None:
    page = LabPage(context, lab_server)
    page.open("notebooks/small.ipynb", theme=theme)
    outputs = page.page.locator(".jp-OutputArea-output img")
    expect(outputs).to_have_count(4)
    expect(page.page.get_by_text("Error displaying widget")).to_have_count(0)
    expect(page.page.get_by_text("Loading widget")).to_have_count(0)
    answer = page.page.locator("details").first
    answer.scroll_into_view_if_needed()
    answer.locator("summary").click()
    expect(answer).to_contain_text("Queries are not cached.")
    page.assert_clean()
    page.close()


def test_the_alarm_rings_for_javascript_errors_and_for_other_hosts(
    context: BrowserContext, lab_server: LabServer
) -> None:
    page = LabPage(context, lab_server)
    page.open("notebooks/small.ipynb")
    page.page.evaluate("() => { setTimeout(() => { throw new Error('seeded'); }, 0); }")
    page.page.evaluate("() => fetch('http://cdn.invalid/x.js').catch(() => 0)")
    page.page.evaluate("() => console.error('a seeded console error')")
    page.page.wait_for_timeout(100)
    said = "\n".join(page.faults)
    assert "JavaScript error: seeded" in said
    assert "request to another host: http://cdn.invalid/x.js" in said
    assert "a seeded console error" in said
    page.close()
