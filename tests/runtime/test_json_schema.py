"""Schemas: what a grammar would pass over is refused, and what it follows gives right values."""

import json
import random

import jsonschema
import numpy as np
import pytest

from minillm_serve.core import RequestRefused, StructuredOutputsParams
from minillm_serve.runtime.structured.grammar import GrammarCompiler
from minillm_serve.runtime.structured.json_schema import DEEPEST, Unsupported, explicit
from tests.llm.tiny import tokenizer
from tests.models.tiny import VOCAB

EOS = 2


@pytest.fixture(scope="module")
def compiler():
    return GrammarCompiler(tokenizer(), VOCAB, {EOS})


def allowed_ids(matcher, grammar):
    bits = np.zeros((1, len(grammar.spellable)), np.int32)
    matcher.fill_next_token_bitmask(bits)
    flags = np.unpackbits((bits[0] & grammar.spellable).view(np.uint8), bitorder="little")
    return np.flatnonzero(flags).tolist()


def wander(compiler, asked, rng, most=400):
    """An answer of random tokens that may come; it ends where it may, and tends to."""
    inner, grammar = tokenizer(), compiler.compile(asked)
    matcher, ids = grammar.matcher(), []
    closing = set(inner.convert_tokens_to_ids(['"', "}", "]", ","]))
    while len(ids) < most:
        allowed = allowed_ids(matcher, grammar)
        if EOS in allowed:
            break
        ending = [i for i in allowed if i in closing]
        token = rng.choice(ending if ending and rng.random() < 0.4 else allowed)
        assert matcher.accept_token(token)
        ids.append(token)
    else:
        return None
    return inner.decode(ids)


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["x", 'y"z', 3, None]}, "maxItems": 3},
        "size": {"anyOf": [{"type": "number", "minimum": 1.5}, {"type": "null"}]},
        'quo"te': {"type": "boolean"},
    },
    "required": ["name", "age", "tags", 'quo"te'],
}
NODE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "v": {"type": "integer", "multipleOf": 3},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["v", "next"],
        }
    },
    "$ref": "#/$defs/node",
}
FOLLOWED = [
    PERSON,
    NODE,
    {"type": "array", "minItems": 2, "maxItems": 3},
    {"type": "object", "minProperties": 1, "maxProperties": 2},
    {"type": "object", "patternProperties": {"^a[0-9]$": {"type": "boolean"}}},
    {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"const": 1}},
    {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "boolean"}},
    {"type": "string", "pattern": "^[A-C]{2,4}-[0-9]+$"},
    {"type": ["string", "null"], "maxLength": 3},
    {"type": "string", "enum": ["red", "green"]},
    {"oneOf": [{"type": "boolean"}, {"type": "null"}], "description": "either"},
]


@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize("schema", FOLLOWED, ids=lambda schema: json.dumps(schema)[:40])
def test_whatever_may_come_satisfies_the_schema(compiler, schema, spaced):
    """JSON Schema's own validator is the judge."""
    asked = StructuredOutputsParams(json=schema, disable_any_whitespace=not spaced)
    rng = random.Random(0)
    answers = [wander(compiler, asked, rng) for _ in range(12)]
    whole = [answer for answer in answers if answer is not None]
    assert len(whole) >= 4
    for answer in whole:
        jsonschema.validate(json.loads(answer), schema, jsonschema.Draft202012Validator)
        assert spaced or "\n" not in answer


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "integer", "not": {"const": 1}}, "#: 'not' is not supported for type 'integer'"),
        ({"if": {}, "then": {}}, "#: 'if' is not supported without a 'type'"),
        ({"minLength": 2}, "'minLength' is not supported without a 'type'"),
        ({"type": "number", "multipleOf": 0.1}, "multipleOf"),
        ({"type": "integer", "multipleOf": 5, "minimum": 7}, "multipleOf and minimum together"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "contains": {}}, "contains"),
        ({"type": "array", "items": [{}]}, "#/items: expected a schema"),
        ({"type": "object", "dependentRequired": {}}, "dependentRequired"),
        ({"type": "object", "properties": {"b": {}}, "required": ["a"]}, "'a' is required"),
        ({"type": "object", "required": "a"}, "expected a list of names"),
        ({"type": "object", "properties": {}, "propertyNames": {}}, "beside propertyNames"),
        ({"type": "object", "properties": {"a": {"minimum": 1}}}, "#/properties/a: 'minimum'"),
        ({"type": "object", "properties": []}, "expected an object of schemas"),
        ({"type": "string", "format": "regex"}, "format 'regex'"),
        ({"type": "string", "format": "date", "maxLength": 3}, "together are not supported"),
        ({"type": "string", "pattern": "a", "minLength": 3}, "together are not supported"),
        ({"type": "string", "pattern": 'a"'}, "a quotation mark"),
        ({"type": "string", "pattern": r"\x22"}, "a quotation mark"),
        ({"type": "string", "pattern": r"\\"}, "a backslash"),
        ({"type": "string", "pattern": r"\Aa"}, r"\\A is not supported"),
        ({"type": "strin"}, "type 'strin' is none of"),
        ({"type": "integer", "enum": [1, "a"]}, "enum 'a' is not of type"),
        ({"type": "integer", "anyOf": [{"minimum": 5}]}, "'type' beside 'anyOf'"),
        ({"anyOf": []}, "at least one schema"),
        ({"$ref": "#/$defs/x", "minimum": 5}, "'minimum' beside '\\$ref'"),
        ({"$ref": "http://a/b"}, "leads out of the schema"),
        ({"$ref": "#anchor"}, "leads out of the schema"),
        ({"allOf": [{}, {}]}, "allOf with several"),
        ({"type": "array", "items": 5}, "#/items: expected a schema"),
    ],
)
def test_what_a_grammar_would_pass_over_is_refused_by_name(compiler, schema, message):
    with pytest.raises(Unsupported, match=message):
        explicit(schema)
    with pytest.raises(RequestRefused, match=f"^structured_outputs.json: .*{message}"):
        compiler.compile(StructuredOutputsParams(json=schema))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"json": {"$ref": "#/nope"}}, "nope"),
        ({"json": {"$ref": "#"}}, "Circular"),
        ({"json": {"type": "object", "properties": {"a": False}}}, "cannot accept any value"),
        ({"json": {"enum": []}}, "must not be empty"),
        ({"regex": "(a"}, "parenthesis is not closed"),
        ({"regex": "(?=a)b"}, "Lookahead"),
        ({"regex": r"a\Zb"}, r"\\Z is not supported"),
        ({"regex": "é"}, "no token of this model can begin"),
        ({"grammar": "root ::= "}, "EBNF parser error"),
        ({"grammar": 'start ::= "a"'}, "root"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_the_reason(compiler, asked, message):
    with pytest.raises(RequestRefused, match=f"^structured_outputs[.][a-z]+: .*{message}") as told:
        compiler.compile(StructuredOutputsParams(**asked))
    assert "/project/" not in str(told.value)


def test_a_schema_that_nests_too_deep_is_refused():
    schema = {"type": "null"}
    for _ in range(DEEPEST + 1):
        schema = {"type": "array", "items": schema}
    with pytest.raises(Unsupported, match="nested more than"):
        explicit(schema)


@pytest.mark.parametrize("text", ['say "no"', "back\\slash", "a\nb", "plain", "[a](b)*"])
def test_a_choice_is_taken_to_the_letter(compiler, text):
    rng = random.Random(1)
    answers = {
        wander(compiler, StructuredOutputsParams(choice=[text, "other"]), rng) for _ in range(20)
    }
    assert answers == {text, "other"}
