"""Streams in which nothing comes for a while, and clients that read, or say, nothing."""

import json
import socket
import time

import openai
import pytest
from starlette.responses import Response

from minillm_serve.server import closing
from minillm_serve.server.connection import PIECE, Connection, send_whole
from tests.server.running import events, eventually, run_async, slow_down, unread

#: Five steps for the prompt, each longer than a stream may be silent.
LONG_PROMPT = {"prompt": [5] * 40, "max_tokens": 3, "ignore_eos": True, "seed": 1}
COMMENT = ": keep-alive"


@pytest.fixture(scope="module")
def halting(start, make_llm):
    """A server that takes a while for each step, and says so sooner."""
    llm = slow_down(make_llm(max_num_batched_tokens=8, prefix_cache=None), 0.15)
    with start({"keep_alive_seconds": 0.05}, llm=llm) as running:
        yield running


def test_a_stream_hears_that_it_is_alive_while_a_long_prompt_is_read_b36(halting):
    """B36: and nothing else before the first token is there."""
    reply = halting.post("/v1/completions", stream=True, **LONG_PROMPT)
    parts = [part for part in reply.text.split("\n\n") if part]
    first = parts.index(next(part for part in parts if part.startswith("data")))
    assert parts[:first] == [COMMENT] * first
    assert first >= 4
    said = "\n\n".join(part for part in parts if part != COMMENT) + "\n\n"
    text = "".join(event["choices"][0]["text"] for event in events(said))
    assert text == halting.complete(**LONG_PROMPT)["choices"][0]["text"]


def test_openais_client_passes_over_the_comments(halting):
    with openai.OpenAI(base_url=f"{halting.url}/v1", api_key="none", max_retries=0) as client:
        options = {**LONG_PROMPT, "extra_body": {"ignore_eos": True}}
        del options["ignore_eos"]
        stream = client.completions.create(model="tiny", stream=True, **options)
        text = "".join(chunk.choices[0].text for chunk in stream)
    assert text == halting.complete(**LONG_PROMPT)["choices"][0]["text"]


def test_an_error_after_a_comment_is_an_event_of_the_stream(halting):
    shape = {"structured_outputs": {"regex": "é|xé"}}
    body = {"prompt": [5] * 40, "stream": True, **shape}
    reply = halting.post("/v1/completions", **{**body, "logit_bias": {"36": 1}})
    assert reply.status_code == 200
    assert reply.text.startswith(COMMENT)
    (*_, error, done) = [part for part in reply.text.split("\n\n") if part and part != COMMENT]
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "no_token_left"
    assert done == "data: [DONE]"


def test_a_busy_stream_gets_no_comments(server):
    reply = server.post("/v1/completions", prompt="hi", stream=True, max_tokens=20)
    assert COMMENT not in reply.text


@pytest.fixture
def little_room(monkeypatch):
    """Connections that hold next to nothing of what has not been read."""
    made = Connection.connection_made

    def make(self, transport):
        made(self, transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    monkeypatch.setattr(Connection, "connection_made", make)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_reads_nothing_is_cut_off_and_leaves_nothing(start, little_room, stream):
    """Its requests end as if it had hung up; a server that stops would wait for it otherwise."""
    with start({"read_seconds": 0.3}, num_blocks=1024) as running:
        body = {"n": 8, "logprobs": 10, "max_tokens": 100, "ignore_eos": True, "stream": stream}
        with unread(running, **body) as connection:
            eventually(lambda: running.service._num_under_way == 1)
            eventually(lambda: running.num_left == 0)
            received = b"".join(iter(lambda: connection.recv(2**16), b""))
        # The connection has come to its end, and the answer's end is not there.
        assert b"HTTP/1.1 200" in received
        assert b"[DONE]" not in received
        assert b'"usage"' not in received
        running.wait_until_idle()
        assert running.complete(max_tokens=2, ignore_eos=True)["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("size", [1, PIECE, PIECE + 1])
def test_a_whole_answer_arrives_in_pieces_and_whole(size):
    sent = []

    async def send(message):
        sent.append(message)

    body = bytes(range(256)) * (size // 256 + 1)
    run_async(send_whole(send, Response(body[:size])))
    assert b"".join(message.get("body", b"") for message in sent) == body[:size]
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
    assert dict(sent[0]["headers"])[b"content-length"] == b"%d" % size


def request(method, path, body=b"", length=None):
    """Bytes of a request; its length may be another one than it says."""
    length = len(body) if length is None else length
    return (
        f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n".encode() + body
    )


@pytest.fixture(scope="module")
def hasty(start, make_llm):
    """A server that soon gives up waiting, and takes longer than that for an answer."""
    settings = {"body_seconds": 0.2, "read_seconds": 0.3, "max_body_bytes": 2**21}
    with start(settings, llm=slow_down(make_llm(), 0.05)) as running:
        yield running


def connections(running):
    """Those that the server holds."""
    return running._server._server.server_state.connections


LONG_ANSWERS = {
    "/tokenize": request("POST", "/tokenize", json.dumps({"prompt": "a" * 100_000}).encode()),
    "/detokenize": request("POST", "/detokenize", json.dumps({"tokens": [5] * 300_000}).encode()),
    "/metrics": request("GET", "/metrics") * 100,
    "/health": request("GET", "/health") * 2000,
}


@pytest.mark.parametrize("path", LONG_ANSWERS)
def test_no_answer_waits_for_ever_to_be_read(hasty, little_room, path):
    """Neither a long one nor many short ones."""
    with hasty.connect() as connection:
        connection.sendall(LONG_ANSWERS[path])
        assert connection.recv(12) == b"HTTP/1.1 200"
        eventually(lambda: not connections(hasty), "the end of the connection")


SLOW_REQUESTS = {
    "nothing": (b"", b""),
    "headers": (b"GET /health HTTP/1.1\r\nX-A: ", b"a"),
    "next request": (request("GET", "/health") + b"GET /health HTTP/1.1\r\nX-A: ", b"a"),
    "body of one that was refused": (request("POST", "/nothing", length=10**6), b"a"),
}


@pytest.mark.parametrize("kind", SLOW_REQUESTS)
def test_a_request_that_does_not_come_to_its_end_is_not_waited_for(hasty, kind):
    """However many bytes of it come meanwhile."""
    begin, drop = SLOW_REQUESTS[kind]
    with hasty.connect() as connection:
        connection.sendall(begin)
        connection.setblocking(False)

        def is_cut():
            try:
                connection.sendall(drop)
                return connection.recv(2**16) == b""
            except OSError as error:
                return not isinstance(error, BlockingIOError)

        eventually(is_cut, "the end of the connection")
        assert is_cut(), "it is cut for good"


def test_who_waits_for_an_answer_or_between_two_requests_is_not_cut_off(hasty):
    with hasty.connect() as connection:
        for _ in range(2):
            body = json.dumps({"prompt": "a", "max_tokens": 8, "ignore_eos": True}).encode()
            connection.sendall(request("POST", "/v1/completions", body))
            answer = b""
            while not answer.endswith(b"}}"):
                piece = connection.recv(2**16)
                assert piece, "it has been cut off"
                answer += piece
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(0.3)


def test_the_connection_ends_with_a_refusal_of_a_body_that_is_too_long_or_late(hasty, monkeypatch):
    """The answer is there for whoever has sent all of it first; nobody sends on for ever."""
    whole = request("POST", "/v1/completions", b" " * 2**23)
    late = request("POST", "/v1/completions", b"{", length=100)
    for sent, status in ((whole, b"413"), (whole[:500], b"413"), (late, b"408")):
        with hasty.connect() as connection:
            connection.sendall(sent)
            answer = b"".join(iter(lambda: connection.recv(2**16), b""))
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"\r\nconnection: close\r\n" in answer
        assert answer.endswith(b"}}")
        monkeypatch.setattr(closing, "LINGER", 0.2)  # the others do not send on
