"""Every chapter in a real JupyterLab: it runs, its controls move pictures, its symbols light.

A chapter that lies in `notebooks/` is tested; nothing is to be added here.
"""

from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet
from playwright.sync_api import BrowserContext, Locator, expect

from minillm_serve.course.lab_server import LabServer
from tests.browser.conftest import REPOSITORY
from tests.browser.lab_page import LabPage

# The embedded model is loaded from the cache, where `make model` has put it.
pytestmark = [pytest.mark.browser, pytest.mark.model, pytest.mark.timeout(480)]

#: One of each kind of page runs in every test, the others in `make test-full`: all their cells run
#: in `make test` as well, without a browser.
ALWAYS = ("01", "08", "10")
CHAPTERS = sorted(path.name for path in (REPOSITORY / "notebooks").glob("[0-9][0-9]_*.ipynb"))

PICTURE = """e => (e.querySelector('img') ?? e.querySelector('.mls-picture svg'))?.outerHTML
  .replace(/mls-lit|class="[^"]*"/g, '')"""


def _marked(name: str) -> ParameterSet:
    return pytest.param(name, marks=[] if name.startswith(ALWAYS) else [pytest.mark.slow])


@pytest.fixture(scope="module", params=map(_marked, CHAPTERS), ids=CHAPTERS)
def chapter(
    request: pytest.FixtureRequest, context: BrowserContext, lab_server: LabServer
) -> Iterator[LabPage]:
    """A chapter, opened and run from top to bottom."""
    page = LabPage(context, lab_server)
    page.open(f"notebooks/{request.param}")
    page.run_all(timeout_s=180)
    yield page
    page.close()


def experiments(page: LabPage) -> list[Locator]:
    """Every live experiment, with its picture revealed."""
    found = page.page.locator(".mls-experiment").all()
    for experiment in found:
        experiment.scroll_into_view_if_needed()
        ask = experiment.get_by_role("button", name="Just show me")
        if ask.count() and ask.is_visible():
            ask.click()
        expect(experiment.locator("img, .mls-picture svg").first).to_be_visible()
    # Whatever scrolls under a resting mouse is pointed at, and that goes before the keyboard.
    page.page.mouse.move(2, 2)
    return found


def sliders(experiment: Locator) -> list[Locator]:
    """The handles of its sliders."""
    return experiment.locator(".mls-control .noUi-handle").all()


def test_the_chapter_runs_without_an_error(chapter: LabPage) -> None:
    assert chapter.cell_errors() == []
    assert chapter.page.locator(".mls-problem").count() == 0
    chapter.assert_clean()


def test_the_chapter_has_an_experiment_and_a_quiz(chapter: LabPage) -> None:
    assert experiments(chapter)
    assert chapter.page.locator(".mls-quiz fieldset").count() >= 3


def test_every_slider_moves_its_picture_by_keyboard(chapter: LabPage) -> None:
    for experiment in experiments(chapter):
        for handle in sliders(experiment):
            before = experiment.evaluate(PICTURE)
            now, top = (
                float(handle.get_attribute(f"aria-value{end}") or 0) for end in ("now", "max")
            )
            chapter.press(handle, "ArrowLeft" if now >= top else "ArrowRight")
            label = experiment.locator(".widget-label").all_inner_texts()
            chapter.page.wait_for_function(
                f"([e, before]) => ({PICTURE})(e) !== before",
                arg=[experiment.element_handle(), before],
            )
            assert experiment.locator(".mls-problem").count() == 0, label
    chapter.assert_clean()


def test_every_symbol_reached_by_keyboard_lights_its_control_or_its_part(chapter: LabPage) -> None:
    formulas = [one for one in experiments(chapter) if one.locator(".mls-formula math").count()]
    for experiment in formulas:
        for symbol in experiment.locator(".mls-formula [tabindex]").all():
            name = symbol.get_attribute("data-sym")
            symbol.focus()
            lit = experiment.locator(
                f'.mls-control.sym-{name}.mls-lit, svg [data-sym~="{name}"].mls-lit'
            )
            assert lit.count() > 0, f"symbol {name} lights nothing"
    chapter.assert_clean()


def test_every_tied_control_lights_its_symbol(chapter: LabPage) -> None:
    for experiment in experiments(chapter):
        for control in experiment.locator('.mls-control[class*="sym-"]').all():
            control.locator(".noUi-handle, select, input").first.focus()
            assert experiment.locator(".mls-formula .mls-lit").count() > 0
    chapter.assert_clean()


def test_every_wrong_answer_of_the_quiz_is_explained(chapter: LabPage) -> None:
    for question in chapter.page.locator(".mls-quiz fieldset").all():
        question.scroll_into_view_if_needed()
        for choice in question.locator("input").all():
            choice.check()
            question.get_by_role("button", name="Check").click()
            said = question.get_by_role("status").inner_text()
            assert said == "✓ Right." or len(said) > len("✗ Not so. "), said
    chapter.assert_clean()
