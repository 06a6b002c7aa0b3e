"""What survives the journey from the learner's process, and where two values first differ."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from minillm_serve.course.exercises.compare import first_difference
from minillm_serve.course.exercises.evidence import EvidenceError, carried, decode
from minillm_serve.course.exercises.exercise import Opaque, Raised

PLAIN = [None, True, 0, -(10**30), 1.5, 1e-320, "text", b"\0\xff", [1, [2.0]], {"a": {1: "x"}}]


@pytest.mark.parametrize("value", [*PLAIN, Raised("ValueError", "no", 3)], ids=repr)
def test_plain_data_arrives_as_it_was(value: Any) -> None:
    got = carried(value)
    assert got == value
    assert type(got) is type(value)


def test_infinities_and_what_is_no_number_arrive() -> None:
    assert carried([float("inf"), float("-inf")]) == [float("inf"), float("-inf")]
    assert np.isnan(carried(float("nan")))


def test_tuples_and_sets_arrive_as_lists_and_numpys_numbers_as_pythons() -> None:
    assert carried((1, {3, 2})) == [1, [2, 3]]
    assert [type(carried(x)) for x in (np.int32(3), np.float32(0.5), np.bool_(True))] == [
        int,
        float,
        np.ndarray,
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_tensors_arrive_as_arrays(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1, 1], [1, 0, 1]]).T.to(dtype)  # not contiguous
    got = carried(tensor)
    assert isinstance(got, np.ndarray)
    assert got.tolist() == tensor.float().tolist()


def test_what_is_no_plain_data_arrives_as_its_name() -> None:
    assert carried(object) == Opaque("type", "<class 'object'>")
    assert len(carried({("a",): "x" * 999}).text) == 200


def test_an_integer_with_opinions_arrives_as_a_plain_one() -> None:
    class Yes(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert type(carried(Yes(3))) is int
    assert carried(Yes(3)) != 4


FORGED = ["5", "[]", '{"float": "x"}', '{"eval": "1"}', '{"array": ["O", [1], ""]}']
FORGED += [
    '{"array": ["<f4", [9], "AAAA"]}',
    '{"int": []}',
    '{"dict": [[[], 1]]}',
    '{"a": 1, "b": 2}',
]


@pytest.mark.parametrize("text", FORGED)
def test_forged_evidence_is_refused(text: str) -> None:
    with pytest.raises(EvidenceError, match="not evidence"):
        decode(json.loads(text))


#: expected, got -> where, and what is told of both
DIFFERENT = {
    "a number": (5, 6, "", 5, 6),
    "a float for a count": (13, 13.0, "", 13, 13.0),
    "True for 1": (1, True, "", 1, True),
    "a text for a number": (1, "1", "", 1, "1"),
    "an item": ([1, [2, 3]], [1, [2, 4]], "[1][1]", 3, 4),
    "a missing item": ([1, 2], [1], "", "2 items", "1 items"),
    "a missing key": ({"a": 1}, {}, "['a']", 1, "nothing under this key"),
    "one key too many": ({}, {"b": 2}, "['b']", "no such key", 2),
    "no list": ([1], 1, "", [1], 1),
    "no array": (np.zeros(2), "x", "", "an array [2]", "x"),
    "a shape": (np.zeros((2, 3)), np.zeros((3, 2)), "", "shape [2, 3]", "shape [3, 2]"),
    "an element": (np.zeros((2, 2)), np.array([[0, 0], [7, 0]]), "[1][0]", 0.0, 7),
    "a tensor": (
        torch.ones(2),
        np.array([1, np.nan]),
        "[1]",
        1.0,
        pytest.approx(np.nan, nan_ok=True),
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_the_first_difference_is_found_with_both_values(what: str) -> None:
    expected, got, index, right, wrong = DIFFERENT[what]
    found = first_difference(expected, got)
    assert found is not None
    assert (found.index, found.expected, found.got) == (index, right, wrong)


SAME = [(1.0, 1), (5, np.int64(5)), ([1, 2], np.array([1, 2])), (np.zeros(2), [0, 0])]


@pytest.mark.parametrize(("expected", "got"), SAME, ids=repr)
def test_the_same_number_in_another_type_is_no_difference(expected: Any, got: Any) -> None:
    assert first_difference(expected, got) is None


def test_tolerances_are_kept_and_no_more() -> None:
    assert first_difference([1.0], [1.001], rtol=1e-2) is None
    assert first_difference([1.0], [1.001], rtol=1e-4) is not None
    assert first_difference(np.ones(2), np.ones(2) + 1e-6, atol=1e-5) is None
    assert first_difference(np.ones(2), np.ones(2) + 1e-4, atol=1e-5) is not None
    assert first_difference([100], [101], rtol=0.5) is not None, "counts are exact"
