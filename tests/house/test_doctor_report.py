"""How findings are shown."""

from minillm_serve.doctor import Check, Status, render, summary, to_json

GOOD = Check("Engine", "torch", Status.OK, "2.13.0")
ODD = Check("Machine", "disk", Status.WARN, "0.5 GiB free", "free some space")
BAD = Check("Engine", "numpy", Status.FAIL, "not installed", "pip install numpy")


def test_names_and_findings_stand_in_columns_under_their_headings() -> None:
    long = Check("Engine", "transformers", Status.OK, "5.24.0")
    lines = render([GOOD, long, ODD], colour=False).splitlines()
    assert lines[0] == "Engine"
    assert lines[1] == "  ✓ torch         2.13.0"
    assert lines[2] == "  ✓ transformers  5.24.0"
    assert lines[4] == "Machine"
    assert lines[5] == "  ! disk          0.5 GiB free"
    assert lines[6] == "                  → free some space"


def test_a_long_finding_wraps_within_its_column() -> None:
    long = Check("Engine", "torch", Status.FAIL, "word " * 40, "remedy " * 40)
    lines = render([long], colour=False, width=80).splitlines()[1:-2]
    assert max(len(line) for line in lines) <= 80
    assert all(line.startswith(" " * 11) for line in lines[1:])


def test_colours_are_only_there_when_asked_for() -> None:
    assert "\x1b[" in render([BAD], colour=True)
    assert "\x1b[" not in render([BAD], colour=False)


def test_a_terminal_without_unicode_gets_ascii_marks() -> None:
    text = render([GOOD, ODD, BAD], colour=False, unicode=False)
    assert text.isascii()
    assert "  x numpy" in text
    assert "-> pip install numpy" in text


def test_the_summary_names_what_is_broken_first() -> None:
    assert summary([GOOD]) == "The engine and the course work here."
    assert summary([GOOD, ODD]) == "The engine works here. Worth a look: disk."
    assert summary([GOOD, ODD, BAD]) == "The engine cannot work here yet: numpy."


def test_json_carries_every_field_and_one_verdict() -> None:
    report = to_json([GOOD, ODD])
    assert report["ok"] is True
    assert report["checks"][1] == {
        "group": "Machine",
        "name": "disk",
        "status": "warn",
        "found": "0.5 GiB free",
        "remedy": "free some space",
    }
    assert to_json([GOOD, BAD])["ok"] is False
