"""What is asked of an answer's shape is checked when it is made; the message names the value."""

import pytest

from minillm_serve import SamplingParams, StructuredOutputsParams
from minillm_serve.core import FixedLengths, Request
from minillm_serve.core.structured_outputs import MOST_CHARS
from tests.core.guessing import Guesser
from tests.core.oracle import make_engine, run


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "nothing: give exactly one"),
        ({"regex": "a", "choice": ["a"]}, "regex and choice: give exactly one"),
        ({"json": "{"}, "json='{': it cannot be read as JSON"),
        ({"json": "[1]"}, "which is an object"),
        ({"json": {"a": float("nan")}}, "cannot be read as JSON"),
        ({"json": {"a": object()}}, "cannot be read as JSON"),
        ({"regex": ""}, "regex='': expected a string"),
        ({"regex": "a" * (MOST_CHARS + 1)}, "at most"),
        ({"grammar": 5}, "grammar=5: expected a string"),
        ({"choice": []}, "at least one"),
        ({"choice": "ab"}, "expected a list of strings"),
        ({"choice": ["a", ""]}, "choice entry=''"),
        ({"choice": ["\ud800"]}, "half a surrogate pair"),
        ({"choice": ["a" * MOST_CHARS, "b"]}, "at most"),
        ({"json_object": False}, "leave structured_outputs out"),
        ({"json_object": 1}, "expected True or False"),
        ({"regex": "a", "disable_any_whitespace": True}, "is for JSON"),
    ],
)
def test_a_bad_value_is_refused_by_name(given, message):
    with pytest.raises(ValueError, match=message):
        StructuredOutputsParams(**given)


def test_what_was_validated_cannot_change_and_equals_its_like():
    schema, choice = {"type": "object"}, ["a", "b"]
    asked, listed = StructuredOutputsParams(json=schema), StructuredOutputsParams(choice=choice)
    schema["type"] = "array"
    choice.append("c")
    assert asked == StructuredOutputsParams(json={"type": "object"})
    assert {asked, listed} == {asked, StructuredOutputsParams(choice=("a", "b"))}
    assert (asked.kind, listed.kind) == ("json", "choice")


def test_an_answer_that_ends_by_eos_cannot_ignore_it():
    shape = StructuredOutputsParams(regex="a")
    assert SamplingParams(structured_outputs=shape).structured_outputs is shape
    with pytest.raises(ValueError, match="ignore_eos with structured_outputs"):
        SamplingParams(structured_outputs=shape, ignore_eos=True)
    with pytest.raises(ValueError, match="expected StructuredOutputsParams"):
        SamplingParams(structured_outputs={"regex": "a"})


def test_a_request_brings_the_grammar_that_its_shape_was_compiled_to():
    params = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"))
    with pytest.raises(ValueError, match="`LLM` compiles"):
        Request(request_id="r", prompt_token_ids=(1,), params=params)
    with pytest.raises(ValueError, match="give both or neither"):
        Request(request_id="r", prompt_token_ids=(1,), grammar=object())


@pytest.mark.parametrize("shaped", [False, True])
def test_whoever_follows_a_grammar_gets_no_drafts(shaped):
    engine = make_engine(guess=Guesser([True], count=3), lengths=FixedLengths(3), num_blocks=64)
    shape = StructuredOutputsParams(regex="a") if shaped else None
    params = SamplingParams(max_tokens=12, structured_outputs=shape)
    grammar = object() if shaped else None
    engine.add_request(
        Request(request_id="r", prompt_token_ids=(1, 2), params=params, grammar=grammar)
    )
    run(engine)
    assert (engine.spec_stats.num_drafts == 0) is shaped
