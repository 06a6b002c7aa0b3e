"""An exercise in a real JupyterLab, as a learner does it: type the answer, run the check, look."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, expect

from minillm_serve.course.exercises.registry import load
from minillm_serve.course.lab_server import LabServer
from tests.browser.conftest import REPOSITORY
from tests.browser.lab_page import KERNEL_IDLE, LabPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(480)]

EX01 = load("ex01")
NOTEBOOK = f"exercises/{EX01.folder}/ex01.ipynb"

#: part -> what is typed over its stub
TYPED = {
    "bytes": "return 2 * config.num_layers * config.num_kv_heads "
    "* (config.head_dim * dtype_bytes + scale_bytes)",
    "sequence": "return sum(min(num_tokens, w or num_tokens) for w in config.sliding_windows) "
    "* kv_bytes_per_token(config, dtype_bytes=dtype_bytes, scale_bytes=scale_bytes) "
    "/ config.num_layers",
    "concurrency": "return int(memory // kv_bytes_per_sequence(config, num_tokens, "
    "dtype_bytes=dtype_bytes, scale_bytes=scale_bytes))",
    "budget": "block = int(block_size * kv_bytes_per_token(config, dtype_bytes=dtype_bytes))\n"
    "if kv_cache_memory < block: raise ValueError(f'{kv_cache_memory} < {block}')\n"
    "return kv_cache_memory // block",
}


@pytest.fixture(scope="module")
def exercise(context: BrowserContext, lab_server: LabServer, lab_root: Path) -> Iterator[LabPage]:
    """ex01 as it was released, its imports run."""
    shutil.copytree(REPOSITORY / "exercises" / EX01.folder, lab_root / Path(NOTEBOOK).parent)
    page = LabPage(context, lab_server)
    page.open(NOTEBOOK)
    stub_line(page, "bytes").click()
    page.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-above')")
    page.page.wait_for_function(KERNEL_IDLE, timeout=60_000)
    yield page
    page.close()


def cell(page: LabPage, words: str) -> Locator:
    """The code cell that holds these words."""
    found = page.page.locator(".jp-CodeCell", has_text=words).first
    found.scroll_into_view_if_needed()
    return found


def answer_cell(page: LabPage, part: str) -> Locator:
    return cell(page, f"def {EX01.part(part).answer}(")


def stub_line(page: LabPage, part: str) -> Locator:
    """The line that is to be replaced."""
    return answer_cell(page, part).locator(".cm-line", has_text="raise NotImplementedError")


def write(page: LabPage, line: Locator, code: str) -> None:
    """Types over a line, then runs the cell and the check below it."""
    line.click()
    page.page.keyboard.press("Home")
    page.page.keyboard.press("Shift+End")
    page.page.keyboard.type(code)
    page.page.keyboard.press("Shift+Enter")
    page.page.keyboard.press("Shift+Enter")


def shown_score(page: LabPage, part: str) -> Locator:
    """What the part's check shows."""
    return cell(page, f'check("ex01-{part}"').locator(".mls-score")


def test_a_learner_solves_ex01(exercise: LabPage) -> None:
    assert (
        'raise NotImplementedError("return the bytes' in stub_line(exercise, "bytes").inner_text()
    )

    # A first try with a mistake: the check says what it is, and has hints folded away.
    line = stub_line(exercise, "bytes")
    write(exercise, line, TYPED["bytes"].replace("num_kv_heads", "num_heads"))
    score = shown_score(exercise, "bytes")
    expect(score).to_contain_text("1 of 4 points")
    expect(score).to_contain_text("these are the query heads")
    expect(score.get_by_text("Count vectors first")).to_be_hidden()
    score.get_by_text("Hint 1 of 3").click()
    expect(score.get_by_text("Count vectors first")).to_be_visible()
    expect(score.get_by_text("Hint 2 of 3")).to_be_visible()
    exercise.page.wait_for_function(KERNEL_IDLE)

    mistaken = answer_cell(exercise, "bytes").locator(".cm-line", has_text="config.num_heads")
    write(exercise, mistaken, TYPED["bytes"])
    expect(shown_score(exercise, "bytes")).to_contain_text("4 of 4 points")

    for part in ("sequence", "concurrency"):
        write(exercise, stub_line(exercise, part), TYPED[part])
        points = EX01.part(part).points
        expect(shown_score(exercise, part)).to_contain_text(f"{points:g} of {points:g} points")
    exercise.assert_clean()


def test_the_check_cells_are_locked_and_the_answers_are_not(exercise: LabPage) -> None:
    check_cell = cell(exercise, 'check("ex01-bytes"')
    check_cell.locator(".cm-content").click()
    exercise.page.keyboard.type("99.0 # ")
    assert check_cell.locator(".cm-content").inner_text().strip() == (
        'check("ex01-bytes", kv_bytes_per_token)'
    )


def test_a_part_that_is_not_written_says_so_and_then_fills_its_slot(exercise: LabPage) -> None:
    answer_cell(exercise, "budget").locator(".cm-content").click()
    exercise.page.keyboard.press("Shift+Enter")
    exercise.page.keyboard.press("Shift+Enter")
    expect(shown_score(exercise, "budget")).to_contain_text(
        "not written yet: return the number of whole blocks"
    )
    write(exercise, stub_line(exercise, "budget"), TYPED["budget"])
    expect(shown_score(exercise, "budget")).to_contain_text("3 of 3 points")
    exercise.assert_clean()
