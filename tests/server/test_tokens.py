"""`/tokenize` and `/detokenize`: the very tokens that the model reads."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from minillm_serve.server import tokens as routes
from minillm_serve.server.schema.tokens import DetokenizeReply, TokenizeReply
from tests.server.running import eventually

CONVERSATION = [{"role": "user", "content": "hi"}]


def test_a_text_becomes_tokens_and_a_text_again(server):
    tokens = server.post("/tokenize", prompt="hello world", return_token_strs=True).json()
    assert tokens["tokens"] == server.llm.tokenizer.encode("hello world")
    assert tokens["count"] == len(tokens["tokens"])
    assert tokens["max_model_len"] == server.service.max_len
    assert "".join(tokens["token_strs"]) == "hello world"
    assert server.post("/detokenize", tokens=tokens["tokens"]).json() == {"prompt": "hello world"}
    assert "token_strs" not in server.post("/tokenize", prompt="a").json()
    assert server.post("/tokenize", prompt="").json()["tokens"] == []


def test_a_conversation_becomes_the_tokens_that_a_chat_is_asked_with(server):
    tokens = server.post("/tokenize", messages=CONVERSATION).json()
    usage = server.chat("hi", max_tokens=1)["usage"]
    assert tokens["tokens"] == server.llm.chat_prompt(CONVERSATION)
    assert usage["prompt_tokens"] == tokens["count"]
    assert server.post("/detokenize", tokens=tokens["tokens"]).json()["prompt"].startswith("<s>")


def test_many_at_once_share_one_tokenizer_while_answers_come(server):
    """It is not made for several threads by itself; texts here are long enough to overlap."""
    texts = [chr(97 + i) * 5000 for i in range(8)]
    with ThreadPoolExecutor(8) as threads:
        answer = threads.submit(server.complete, max_tokens=50, ignore_eos=True)
        replies = list(threads.map(lambda text: server.post("/tokenize", prompt=text), texts * 4))
        assert answer.result()["usage"]["completion_tokens"] == 50
    for text, reply in zip(texts * 4, replies, strict=True):
        assert set(reply.json()["tokens"]) == set(server.llm.tokenizer.encode(text[:1]))
        assert reply.json()["count"] == 5000


@pytest.mark.parametrize(
    ("path", "body", "where", "name"),
    [
        ("/tokenize", {"prompt": "hi", "return_token_strs": True}, routes, "own_text"),
        ("/tokenize", {"prompt": "hi"}, TokenizeReply, "json_bytes"),
        ("/detokenize", {"tokens": [5]}, DetokenizeReply, "json_bytes"),
    ],
)
def test_nobody_else_waits_while_a_long_reply_is_written(
    server, monkeypatch, path, body, where, name
):
    """Here it takes until somebody else has had an answer."""
    began, others_are_served, in_vain = Event(), Event(), []
    honest = getattr(where, name)

    def slowly(*args):
        began.set()
        if not others_are_served.wait(2):
            in_vain.append(name)
        return honest(*args)

    monkeypatch.setattr(where, name, slowly)
    with ThreadPoolExecutor(1) as thread:
        reply = thread.submit(server.post, path, **body)
        eventually(began.is_set)
        assert server.client.get("/health").status_code == 200
        others_are_served.set()
        assert reply.result().status_code == 200
    assert not in_vain


def test_more_tokens_than_a_reply_lists_are_refused(start):
    with start({"max_listed_tokens": 8}) as running:
        assert running.post("/tokenize", prompt="a" * 8).json()["count"] == 8
        assert running.post("/detokenize", tokens=[5] * 8).status_code == 200
        for path, body in (
            ("/tokenize", {"prompt": "a" * 9}),
            ("/tokenize", {"messages": [{"role": "user", "content": "a" * 9}]}),
            ("/detokenize", {"tokens": [5] * 9}),
        ):
            reply = running.post(path, **body)
            error = reply.json()["error"]
            assert (reply.status_code, error["param"]) == (400, next(iter(body)))
            assert "tokens, at most 8 at a time: send it in parts" in error["message"]
