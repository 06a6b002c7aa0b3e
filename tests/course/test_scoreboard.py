"""The scoreboard's reader."""

import json
from pathlib import Path
from typing import Any

import pytest

from minillm_serve.course import Scoreboard
from minillm_serve.course.scoreboard import PATH, Row, ScoreboardError

STAMP = {"hardware": "2 cores", "versions": {"torch": "2.13"}, "date": "2026-11-29", "seed": 0}
ROWS = [
    {"id": "slow", "chapter": 4, "technique": "static", "output_tok_s": 40.0, "ttft_p50_s": 1.25,
     "note": "It waits <for> the longest."},
    {"id": "naive", "chapter": 0, "technique": "one at a time", "output_tok_s": 20.5,
     "ttft_p50_s": 12.0, "ttft_p95_s": 20.0, "tpot_p50_s": 0.05, "tpot_p95_s": 0.0613,
     "kv_waste": 0.625, "slot_utilisation": 0.3},
]  # fmt: skip


@pytest.fixture
def board(tmp_path: Path) -> Scoreboard:
    """Two rows, written and read back."""
    return Scoreboard.load(write(tmp_path, {"stamp": STAMP, "rows": ROWS}))


def write(folder: Path, data: Any) -> Path:
    """Write a scoreboard where the course looks for it."""
    file = folder / PATH
    file.parent.mkdir(parents=True)
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return file


def test_rows_come_in_the_order_of_the_chapters(board: Scoreboard) -> None:
    assert [row.id for row in board.rows] == ["naive", "slow"]
    assert [row.id for row in board.up_to(1)] == ["naive"]


def test_the_table_has_units_gaps_notes_and_the_stamp(board: Scoreboard) -> None:
    text = repr(board.table())
    lines = text.splitlines()
    assert lines[1].split()[-7:] == ["12,000", "20,000", "50.0", "61.3", "20.5", "62%", "30%"]
    assert "–" in lines[2]
    assert "  static: It waits <for> the longest." in lines
    assert "hardware 2 cores · versions torch 2.13 · date 2026-11-29 · seed 0" in text


def test_the_page_escapes_what_it_shows(board: Scoreboard) -> None:
    assert "It waits &lt;for&gt; the longest." in board.table()._repr_html_()


def test_a_live_row_is_marked_and_has_a_stamp_of_its_own(board: Scoreboard) -> None:
    live = {"id": "me", "chapter": 1, "technique": "mine", "output_tok_s": 99.0}
    stamp = {"hardware": "a laptop", "trace": "short"}
    table = board.table(up_to_chapter=1, live_row=live, live_stamp=stamp)
    for shown in (repr(table), table._repr_html_()):
        assert "mine [LIVE]" in shown
        assert "hardware a laptop · trace short" in shown
        assert "compare with the committed rows only if" in shown
    assert "[LIVE]" not in repr(board.table())


def test_a_live_row_without_a_stamp_is_refused(board: Scoreboard) -> None:
    with pytest.raises(ValueError, match="live_stamp"):
        board.table(live_row=Row("me", 1, "mine"))


def test_the_figure_states_who_makes_most_tokens(board: Scoreboard) -> None:
    titles = [ax.get_title(loc="left") for ax in board.figure().axes]
    assert titles[0] == "Most: static"
    with pytest.raises(ValueError, match="no row up to chapter -1"):
        board.figure(up_to_chapter=-1)


def test_it_is_found_from_the_notebooks_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"stamp": STAMP, "rows": ROWS})
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    assert len(Scoreboard.load().rows) == 2


@pytest.mark.parametrize("content", [None, "{", "[]", '{"rows": []}'])
def test_a_missing_or_broken_file_says_how_to_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        write(tmp_path, content)
    with pytest.raises(ScoreboardError, match="minillm-serve bench scoreboard"):
        Scoreboard.load()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "x", "chapter": 1, "technique": "t", "tok_s": 1}, r"unknown fields \['tok_s'\]"),
        ({"id": "x", "chapter": 1}, r"'x' lacks \['technique'\]"),
    ],
)
def test_a_malformed_row_is_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ScoreboardError, match=message):
        Row.from_dict(row)
