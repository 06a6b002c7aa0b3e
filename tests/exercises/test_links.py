"""From a chapter to its exercise, and from there back: links that lead somewhere, in Lab too."""

import json
import re
from pathlib import Path

import pytest

from minillm_serve.course import lab
from minillm_serve.course.exercises.program import source_of
from minillm_serve.course.exercises.registry import all_exercises
from tests.house.tree import ROOT

PAGES = [
    *sorted((ROOT / "exercises").rglob("*.ipynb")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
    ROOT / "exercises" / "README.md",
    ROOT / "solutions" / "README.md",
]


def text_of(page: Path) -> str:
    """What is written on a page."""
    if page.suffix != ".ipynb":
        return page.read_text("utf-8")
    cells = json.loads(page.read_text("utf-8"))["cells"]
    return "\n".join(source_of(cell) for cell in cells if cell["cell_type"] == "markdown")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text_of(page), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.id)
def test_the_tables_of_both_readmes_have_every_exercise(exercise) -> None:
    for folder in ("exercises", "solutions"):
        assert exercise.folder in (ROOT / folder / "README.md").read_text("utf-8")


def test_chapter_01_points_at_ex01_and_lab_shows_both() -> None:
    root = lab.find_root(ROOT)
    chapter = root / "notebooks" / "01_kv_cache_sizing.ipynb"
    assert "(../exercises/ex01_kv_budget/ex01.ipynb)" in text_of(chapter)
    assert (root / "exercises" / "ex01_kv_budget" / "ex01.ipynb").is_file()
