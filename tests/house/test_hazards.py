"""No hazard is forgotten: a test names it, or the table says why none does."""

import pytest

from tests.house.hazards import TABLE, faults, find_tests, main, named_in, read_table
from tests.house.tree import ROOT


def test_every_hazard_is_named_by_a_test_or_has_a_reason() -> None:
    hazards = read_table(TABLE.read_text("utf-8"))
    lost = find_tests(hazards, (ROOT / "tests").rglob("test_*.py"))
    assert (faults(hazards), lost) == ([], [])


def test_an_id_counts_in_the_name_or_the_docstring_of_a_test_and_nowhere_else() -> None:
    source = '''
"""Module, B10."""
def test_one_b11(): pass
class TestTwo:
    def test_three(self):
        """Guards against B12, B13 and B200x, and against B12 again."""
        assert "B14"  # B15
def helper_b16():
    """B17"""
'''
    assert list(named_in(source)) == [
        ("test_one_b11", "B11"),
        ("test_three", "B12"),
        ("test_three", "B13"),
    ]


TWO = '[a]\nB10 = "x"\n[b]\nB11 = "y"\n'


def test_a_hazard_without_a_test_needs_a_reason_and_one_with_a_test_has_none() -> None:
    hazards = read_table(TWO)
    assert [fault[:3] for fault in faults(hazards)] == ["B10", "B11"]
    hazards = read_table(TWO + '[reasons]\nB10 = "needs a GPU"\n')
    hazards["B11"].tests.append("tests/a.py::test_b11")
    assert faults(hazards) == []
    hazards["B10"].tests.append("tests/a.py::test_b10")
    assert faults(hazards) == ["B10: tests/a.py::test_b10 names it now, so delete its reason"]


@pytest.mark.parametrize(
    ("more", "message"),
    [('[c]\nB10 = "z"\n', "B10 stands"), ('[reasons]\nB99 = "z"\n', "unknown: B99")],
)
def test_a_table_with_an_id_twice_or_a_reason_for_none_is_refused(more: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(TWO + more)


def test_the_list_has_each_hazard_with_its_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    told = capsys.readouterr().out
    assert "\nB43  scheduler: " in told
    assert "      tests/server/test_hangups.py::test_all_answers_to_a_prompt_end_b43\n" in told
