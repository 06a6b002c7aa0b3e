"""Bad input is a 400 that names the field; the server goes on. Never a 5xx."""

import pytest

from minillm_serve.server.schema.base import parse
from minillm_serve.server.schema.completions import CompletionRequest

ENDPOINTS = ["/v1/completions", "/v1/chat/completions"]
ASKS = {
    "/v1/completions": {"prompt": "hello"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
}


def refused(server, path, body, param, status=400):
    """Checks a refusal, whole and as a stream, and that the server goes on; its message."""
    for more in ({}, {"stream": True}):
        reply = server.post(path, **{**body, **more})
        assert reply.status_code == status, reply.text
        error = reply.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert error["param"] == param, error
    assert server.complete(max_tokens=1)["choices"]
    return error["message"]


@pytest.mark.parametrize("prompt", ["", [""], [], [[]], [[5], []], ["a", ""]])
def test_an_empty_prompt_is_refused_b104(server, prompt):
    assert "at least one" in refused(server, "/v1/completions", {"prompt": prompt}, "prompt")


def test_no_messages_and_no_prompt_are_refused_b104(server):
    refused(server, "/v1/chat/completions", {"messages": []}, "messages")
    assert "Field required" in refused(server, "/v1/chat/completions", {}, "messages")
    refused(server, "/v1/completions", {"prompt": None}, "prompt")


NO_IDS = [[97], [-1], [1.5], [1.0], [2**40], [10**30], [True], [[True]], [None], [[1], [97]]]
NO_PROMPTS = [["a", 1], [1, "a"], [[1], 2], 3, {"a": 1}]


@pytest.mark.parametrize("prompt", [*NO_IDS, *NO_PROMPTS])
def test_ids_that_are_none_are_refused_b106(server, prompt):
    refused(server, "/v1/completions", {"prompt": prompt}, "prompt")


RAW = {
    "half": b"{,",
    "nothing": b"",
    "no text": b"\xff\xfe",
    "lone surrogate": b'{"prompt": "\\ud800"}',
    "nested": b'{"prompt": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep": b"[" * 10_000,
    "a list": b"[]",
    "a string": b'"prompt"',
    "a number too long": b'{"prompt": [' + b"9" * 5000 + b"]}",
    "not a number": b'{"prompt": "a", "temperature": NaN}',
    "infinity": b'{"prompt": "a", "temperature": 1e999}',
    "a bias without end": b'{"prompt": "a", "logit_bias": {"5": 1e999}}',
}


@pytest.mark.parametrize("kind", RAW)
@pytest.mark.parametrize("path", [*ENDPOINTS, "/tokenize", "/detokenize"])
def test_malformed_bodies_get_a_json_error_b107(server, path, kind):
    headers = {"content-type": "application/json"}
    reply = server.client.post(path, content=RAW[kind], headers=headers)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert len(reply.content) < 600
    if kind == "deep":
        assert "nested too deeply" in reply.json()["error"]["message"]
    assert server.complete(max_tokens=1)["choices"]


def test_a_bias_that_is_no_number_is_named_as_it_was_sent_b107(server):
    body = b'{"prompt": "a", "logit_bias": {"5": NaN}}'
    reply = server.client.post(
        "/v1/completions", content=body, headers={"content-type": "application/json"}
    )
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "logit_bias")
    assert "nan" in reply.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "nonsense"])
def test_other_kinds_of_bodies_are_415_b107(server, kind):
    reply = server.client.post("/v1/completions", content=b"{}", headers={"content-type": kind})
    assert (reply.status_code, reply.json()["error"]["param"]) == (415, None)
    fine = {"content-type": "Application/JSON; charset=utf-8"}
    reply = server.client.post("/v1/completions", content=b'{"prompt": "a"}', headers=fine)
    assert reply.status_code == 200


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 10**20}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"n": True}, "n"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 10**20}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"logit_bias": {"97": 5}}, "logit_bias"),
        ({"logit_bias": {"-1": 5}}, "logit_bias"),
        ({"logit_bias": {"abc": 5}}, "logit_bias"),
        ({"logit_bias": {"5": 1e9}}, "logit_bias"),
        ({"logit_bias": {"5": "much"}}, "logit_bias"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": [1]}, "stop"),
        ({"stop": "a" * 2000}, "stop"),
        ({"stop_token_ids": [102], "min_tokens": 1}, "stop_token_ids"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids"),
        ({"stop_token_ids": [True]}, "stop_token_ids"),
        ({"min_tokens": 9, "max_tokens": 4}, "min_tokens"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"priority": 10**30}, "priority"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "a" * 300}, "cache_salt"),
        ({"prompt_logprobs": 21, "stream": None}, "prompt_logprobs"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"user": 5}, "user"),
    ],
)
def test_values_out_of_range_are_refused_by_name_b83_b85_b86_b102(server, path, more, param):
    body = {**ASKS[path], **more}
    if "prompt_logprobs" in more:
        reply = server.post(path, **body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
        return
    refused(server, path, body, param)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_ids_without_end_are_refused_before_one_is_looked_at_b85_b86(server, path):
    stops = {"stop_token_ids": [5] * 1024 + ["a"]}
    biases = {"logit_bias": {"a": 1} | {str(i): 1 for i in range(1024)}}
    for more in (stops, biases):
        (name,) = more
        message = refused(server, path, {**ASKS[path], **more}, name)
        assert all(part in message for part in (name, "1024", "1025"))
    assert server.post(path, **ASKS[path], stop_token_ids=[5] * 1024).status_code == 200


def test_stop_token_ids_that_come_again_are_left_out_b86():
    body = parse(CompletionRequest, b'{"prompt": "a", "stop_token_ids": [7, 5, 7, 5]}')
    assert body.params().stop_token_ids == (7, 5)


def test_the_choices_of_an_answer_are_counted_before_they_are_looked_at(server):
    choice = ["a" * 1024] * 64 + ["\0"]
    body = {"prompt": "hello", "structured_outputs": {"choice": choice}}
    message = refused(server, "/v1/completions", body, "structured_outputs")
    assert "choice has 65537 characters: at most 65536 in all" in message


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("field", ["best_of", "suffix", "tools", "functions", "audio", "x" * 5000])
def test_fields_that_are_not_supported_are_refused_by_name(server, path, field):
    message = refused(server, path, {**ASKS[path], field: 1}, (field[:200] + "...")[: len(field)])
    assert field[:100] in message
    assert len(message) < 300
    reply = server.post(path, **{**ASKS[path], field: None, "max_tokens": 1})
    assert reply.status_code == 200


def test_a_body_of_a_hundred_thousand_unknown_fields_gets_one_error(server):
    body = {f"field{i}": 1 for i in range(100_000)}
    reply = server.post("/v1/completions", **body)
    assert (reply.status_code, len(reply.content) < 300) == (400, True)
    messages = [{}] * 100_000
    reply = server.post("/v1/chat/completions", messages=messages)
    assert (reply.status_code, len(reply.content) < 300) == (400, True)


def test_more_logprobs_than_the_limit_are_refused_b95(server):
    for count in (21, -1):
        body = {"prompt": "a", "logprobs": count}
        assert "from 0 to 20" in refused(server, "/v1/completions", body, "logprobs")
        body = {**ASKS["/v1/chat/completions"], "logprobs": True, "top_logprobs": count}
        assert "from 0 to 20" in refused(server, "/v1/chat/completions", body, "top_logprobs")
    body = {**ASKS["/v1/chat/completions"], "top_logprobs": 2}
    refused(server, "/v1/chat/completions", body, "top_logprobs")


@pytest.mark.parametrize(
    ("messages", "where"),
    [
        ([{"role": "robot", "content": "a"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": "a", "name": "ada"}], "name"),
        (["hello"], "messages[0]"),
        ("hello", "messages"),
    ],
)
def test_messages_that_are_none_are_refused_by_their_place(server, messages, where):
    message = refused(server, "/v1/chat/completions", {"messages": messages}, "messages")
    assert where in message


@pytest.mark.parametrize("path", ENDPOINTS)
def test_another_model_is_404(server, path):
    for name in ("gpt-4", "x" * 5000, "tiny "):
        body = {**ASKS[path], "model": name}
        assert "does not exist" in refused(server, path, body, "model", status=404)


def test_options_that_belong_to_streams_are_refused_without_one(server):
    reply = server.post("/v1/completions", prompt="a", stream_options={"include_usage": True})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "stream_options")
    body = {"prompt": "a", "stream": True, "prompt_logprobs": 1}
    reply = server.post("/v1/completions", **body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "prompt_logprobs")


@pytest.fixture(scope="module")
def short(start):
    """A server whose context is 32 tokens."""
    with start(max_model_len=32) as running:
        yield running


@pytest.mark.parametrize(
    ("num_prompt", "more"), [(30, {"max_tokens": 10}), (32, {"max_tokens": 1}), (32, {}), (40, {})]
)
def test_what_the_context_cannot_hold_is_refused_b109(short, num_prompt, more):
    message = refused(short, "/v1/completions", {"prompt": [5] * num_prompt, **more}, "prompt")
    asked = num_prompt + more.get("max_tokens", 1)
    for number in ("32 tokens", f"{asked} tokens", f"{num_prompt} in the prompt"):
        assert number in message


def test_in_chats_the_template_counts_as_well_b109(short):
    turn = [{"role": "user", "content": "0123"}]
    num_prompt = len(short.post("/tokenize", messages=turn).json()["tokens"])
    assert num_prompt < 30
    for name in ("max_tokens", "max_completion_tokens"):
        body = {"messages": turn, name: 33 - num_prompt}
        message = refused(short, "/v1/chat/completions", body, "messages")
        assert f"{num_prompt} in the messages" in message
        fits = {**body, name: 32 - num_prompt, "ignore_eos": True}
        reply = short.post("/v1/chat/completions", **fits)
        assert reply.json()["usage"]["total_tokens"] == 32


def test_a_text_that_is_surely_too_long_is_refused_before_it_is_cut_into_tokens_b109(short):
    """No token of the tiny model is longer than `<pad>`, of 5 bytes."""
    body = {"prompt": ["a", "a" * 161], "max_tokens": 2}
    message = refused(short, "/v1/completions", body, "prompt")
    assert "at least 35 tokens (at least 33 in the prompt, 2 for the answer)" in message
    body = {"prompt": "a" * 160}
    assert "161 tokens (160 in the" in refused(short, "/v1/completions", body, "prompt")
    for content, told in (("a" * 161, "(at least"), ("a" * 9 + "b" * 9, "(38 in")):
        body = {"messages": [{"role": "user", "content": content}]}
        message = refused(short, "/v1/chat/completions", body, "messages")
        assert told in message
        assert "in the messages" in message


def test_without_a_limit_the_answer_gets_the_room_that_is_left_b109(short):
    reply = short.complete([5] * 30, ignore_eos=True, temperature=0)
    assert reply["usage"]["completion_tokens"] == 2
    assert reply["choices"][0]["finish_reason"] == "length"


def test_more_prompts_than_allowed_or_than_may_ever_wait_are_refused(start):
    with start({"max_prompts": 8}, max_num_waiting=4) as running:
        assert "at most 8" in refused(running, "/v1/completions", {"prompt": ["a"] * 9}, "prompt")
        body = {"prompt": ["a"] * 3, "n": 2}
        assert "only 4 may wait" in refused(running, "/v1/completions", body, "prompt")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}),
        ("/tokenize", {"prompt": 5}),
        ("/detokenize", {"tokens": [97]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [2**70]}),
        ("/detokenize", {"tokens": ["a"]}),
        ("/detokenize", {}),
    ],
)
def test_tokens_that_are_none_are_refused(server, path, body):
    assert server.post(path, **body).status_code == 400


def test_paths_and_methods_that_are_none_get_openais_errors(server):
    for reply, status in (
        (server.client.get("/v1/nothing"), 404),
        (server.client.get("/v1/completions"), 405),
        (server.client.request("BREW", "/health"), 405),
        (server.client.get("/v1/models/gpt-4"), 404),
    ):
        assert reply.status_code == status
        assert reply.json()["error"]["type"] == "invalid_request_error"
