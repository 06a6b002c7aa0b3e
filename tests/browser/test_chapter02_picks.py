"""The memory ledger in a real JupyterLab: a sequence is pointed at, clicked, chosen by keyboard."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import BrowserContext, Locator, expect

from minillm_serve.course.lab_server import LabServer
from tests.browser.lab_page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

SOURCE = """from minillm_serve.course.chapter02 import ledger
ledger.experiment()"""


@pytest.fixture(scope="module")
def page(context: BrowserContext, lab_server: LabServer, lab_root: Path) -> Iterator[LabPage]:
    """A notebook with nothing but the ledger, revealed."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [new_code_cell(SOURCE, id="c0")]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, lab_root / "notebooks" / "ledger.ipynb")
    page = LabPage(context, lab_server)
    page.open("notebooks/ledger.ipynb")
    page.run_all(timeout_s=120)
    assert page.cell_errors() == []
    page.experiment("The memory ledger").get_by_role("button", name="Just show me").click()
    yield page
    page.assert_clean()
    page.close()


@pytest.fixture
def ledger(page: LabPage) -> Locator:
    """The experiment, with its drawing there."""
    experiment = page.experiment("The memory ledger")
    expect(experiment.locator(".mls-picture svg")).to_be_visible()
    return experiment


def row(ledger: Locator, place: int) -> Locator:
    """The bar of a sequence's tokens."""
    return ledger.locator(f'.mls-picture [data-sym="L seq{place}"]').first


def readout(ledger: Locator) -> Locator:
    """The number beside the slider that chooses a sequence."""
    return ledger.locator(".mls-control", has_text="sequence").locator(".widget-readout")


def test_a_click_on_a_sequence_chooses_it(ledger: Locator) -> None:
    row(ledger, 9).click()
    expect(readout(ledger)).to_have_text("9")


def test_enter_on_a_sequence_chooses_it(page: LabPage, ledger: Locator) -> None:
    page.press(row(ledger, 5), "Enter")
    expect(readout(ledger)).to_have_text("5")


def test_pointing_at_a_sequence_lights_its_blocks_and_tells_its_table(ledger: Locator) -> None:
    row(ledger, 12).hover()
    expect(ledger.locator(".mls-hint")).to_contain_text("block table [")
    lit = ledger.locator('.mls-picture [data-sym~="seq12"]')
    assert lit.count() >= 3  # its row, its number, its blocks
    assert lit.evaluate_all("all => all.every(one => one.classList.contains('mls-lit'))")


def test_the_drawing_stays_where_it_is_whatever_is_pointed_at(
    page: LabPage, ledger: Locator
) -> None:
    """A hint that needs a second line once pushed the drawing away from the pointer and back."""
    page.page.mouse.move(2, 2)
    picture = ledger.locator(".mls-picture")
    # In one go: the drawing may be replaced between two looks at it.
    picture.evaluate("it => it.querySelector('[data-sym=\"L seq12\"]').scrollIntoViewIfNeeded()")
    before = picture.bounding_box()
    row(ledger, 12).hover()
    expect(ledger.locator(".mls-hint")).to_contain_text("block table [")
    assert picture.bounding_box() == before
