"""Answers of a given shape over HTTP, and under OpenAI's client."""

import json
import re
import threading
from typing import Literal

import openai
import pydantic
import pytest

from minillm_serve.runtime.structured.grammar import GrammarCompiler
from tests.server.running import events, eventually

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "b"]}, "ok": {"type": "boolean"}},
    "required": ["kind", "ok"],
    "additionalProperties": False,
}
NAMED = {"name": "thing", "schema": SCHEMA, "strict": True}
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_json_schema_is_satisfied_under_openais_client(client):
    form = {"type": "json_schema", "json_schema": NAMED}
    options = {"model": "tiny", "messages": MESSAGES, "response_format": form, "max_tokens": 120}
    whole = client.chat.completions.create(**options, n=2, seed=1)
    for choice in whole.choices:
        value = json.loads(choice.message.content)
        assert value["kind"] in ("a", "b")
        assert choice.finish_reason == "stop"
    pieces = [""] * 2
    for chunk in client.chat.completions.create(**options, n=2, seed=1, stream=True):
        for choice in chunk.choices:
            pieces[choice.index] += choice.delta.content or ""
    assert pieces == [choice.message.content for choice in whole.choices]


def test_the_clients_own_parser_gets_its_object(client):
    class Thing(pydantic.BaseModel):
        kind: Literal["a", "b"]
        ok: bool

    parsed = client.chat.completions.parse(
        model="tiny", messages=MESSAGES, response_format=Thing, max_tokens=120, seed=2
    )
    assert isinstance(parsed.choices[0].message.parsed, Thing)


@pytest.mark.parametrize(
    ("shape", "pattern"),
    [
        ({"regex": "[ab]{3}[0-9]"}, "[ab]{3}[0-9]"),
        ({"choice": ["yes", "no"]}, "yes|no"),
        ({"grammar": 'root ::= "a" [0-9]'}, "a[0-9]"),
        ({"json": SCHEMA, "disable_any_whitespace": True}, r'{"kind": "[ab]", "ok": (true|false)}'),
        ({"json": json.dumps({"const": None})}, "null"),
    ],
)
def test_vllms_field_works_for_both_endpoints(server, shape, pattern):
    body = {"structured_outputs": shape, "max_tokens": 60}
    text = server.complete(**body)["choices"][0]["text"]
    assert re.fullmatch(pattern, text)
    reply = server.chat(**body, logprobs=True)["choices"][0]
    assert re.fullmatch(pattern, reply["message"]["content"])
    assert reply["finish_reason"] == "stop"
    assert "".join(e["token"] for e in reply["logprobs"]["content"]) == reply["message"]["content"]


def test_any_object_is_one_and_text_is_text(server):
    form = {"type": "json_object"}
    assert server.complete(response_format=form)["choices"][0]["text"].lstrip().startswith("{")
    plain = server.complete(seed=1, response_format={"type": "text"})
    assert plain["choices"] == server.complete(seed=1)["choices"]


REFUSED = [
    ({"response_format": {"type": "json_schema"}}, "response_format", "goes with the type"),
    ({"response_format": {"type": "text", "json_schema": NAMED}}, "response_format", "goes with"),
    ({"response_format": {"type": "grammar"}}, "response_format", "'text', 'json_object'"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "x": 1}}},
        "response_format",
        "'x' is not supported",
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"type": "array", "uniqueItems": True}},
            }
        },
        "response_format",
        "uniqueItems",
    ),
    ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "exactly one"),
    ({"structured_outputs": {"regex": "(a"}}, "structured_outputs", "not closed"),
    (
        {"structured_outputs": {"regex": r"\pL"}},
        "structured_outputs",
        r".regex: \p is not supported",
    ),
    (
        {"structured_outputs": {"json": {"type": "string", "minLength": -1}}},
        "structured_outputs",
        "structured_outputs.json: Invalid repetition range",
    ),
    ({"structured_outputs": {"regex": "é"}}, "structured_outputs", "no token of this model"),
    ({"structured_outputs": {"json": "{"}}, "structured_outputs", "cannot be read as JSON"),
    ({"structured_outputs": {"structural_tag": "a"}}, "structured_outputs", "structural_tag"),
    ({"structured_outputs": {"choice": [1]}}, "structured_outputs", "choice"),
    ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, None, "ignore_eos"),
    (
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "structured_outputs",
        "give one of them",
    ),
    ({"structured_outputs": {"regex": "xé"}}, None, "no token is left to choose"),
]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize(("body", "param", "message"), REFUSED)
def test_what_cannot_be_is_refused_with_the_reason_b88(server, path, body, param, message):
    """B88 among them: a dead end is the request's fault, not the server's."""
    asked = {"prompt": "hi"} if path == "/v1/completions" else {"messages": MESSAGES}
    reply = server.post(path, **asked, **body)
    error = reply.json()["error"]
    assert reply.status_code == 400, reply.text
    assert message in error["message"]
    assert param is None or error["param"] == param


def test_a_dead_end_in_a_stream_is_its_last_event(server):
    body = {"prompt": "hi", "structured_outputs": {"regex": "xé"}, "stream": True}
    reply = server.client.post("/v1/completions", json=body)
    last = events(reply.text)[-1]
    assert last["error"]["code"] == "no_token_left"


def test_a_shape_that_takes_long_to_compile_keeps_nobody_waiting(start, make_llm, monkeypatch):
    """Others are cut into tokens, let in and answered meanwhile; so are shapes that are known."""
    llm, go, begun = make_llm(), threading.Event(), threading.Event()
    compile_kind = GrammarCompiler._compile_kind

    def slow(self, asked):
        if asked.regex == "slow":
            begun.set()
            assert go.wait(60)
        return compile_kind(self, asked)

    monkeypatch.setattr(GrammarCompiler, "_compile_kind", slow)
    with start(llm=llm) as running:
        running.complete(structured_outputs={"regex": "[ab]"})
        told = []

        def ask():
            told.append(running.complete(structured_outputs={"regex": "slow"}))

        asking = threading.Thread(target=ask)
        asking.start()
        assert begun.wait(60)
        for _ in range(10):
            running.complete(max_tokens=2)
            running.complete(structured_outputs={"regex": "[ab]"})
        assert not told
        go.set()
        asking.join()
        assert told[0]["choices"][0]["text"] == "slow"
        eventually(lambda: running.num_left == 0)
