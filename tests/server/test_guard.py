"""The door: keys, ids, sizes, origins."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest

from minillm_serve.server.settings import ServerSettings
from tests.server.running import eventually, run_async


@pytest.fixture(scope="module")
def locked(start):
    """A server with a key, a small body limit and one origin."""
    settings = {
        "api_key": " sesame\n",  # as in the file of a secret
        "max_body_bytes": 1000,
        "body_seconds": 1.0,
        "cors_origins": ("https://course.example",),
    }
    with start(settings) as running:
        yield running


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def test_everything_but_the_probes_needs_the_key(locked):
    for path in ("/v1/models", "/metrics", "/version", "/openapi.json", "/nothing"):
        reply = locked.client.get(path)
        assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert reply.json()["error"]["code"] == "invalid_api_key"
    for path in ("/health", "/ready"):
        assert locked.client.get(path).status_code == 200
    assert locked.client.get("/v1/models", headers=bearer("sesame")).status_code == 200
    assert locked.client.get("/v1/models", headers={"authorization": "bearer sesame"}).is_success


@pytest.mark.parametrize(
    "value", [b"Bearer sesam", b"Bearer sesame2", b"Bearer", b"", b"Basic sesame", b"\xff\xfe"]
)
def test_another_key_is_none(locked, value):
    reply = locked.client.get("/v1/models", headers={b"authorization": value})
    assert reply.status_code == 401
    assert "sesame" not in reply.text


def test_white_space_around_a_configured_key_is_no_part_of_it():
    """A header's value cannot have it."""
    assert ServerSettings(served_model_name="a", api_key="\tse same \r\n").api_key == "se same"
    with pytest.raises(ValueError, match="api_key is blank"):
        ServerSettings(served_model_name="a", api_key=" \n")


def test_keys_are_compared_in_constant_time(locked, monkeypatch):
    """By the function that is made for it, on digests of one length."""
    from minillm_serve.server import guard

    seen = []
    honest = guard.hmac.compare_digest
    monkeypatch.setattr(
        guard.hmac, "compare_digest", lambda a, b: seen.append((a, b)) or honest(a, b)
    )
    locked.client.get("/v1/models", headers=bearer("x"))
    assert [(len(a), len(b)) for a, b in seen] == [(32, 32)]


def test_a_body_that_is_too_long_is_413_announced_or_not_b107(locked):
    body = b'{"prompt": "' + b"a" * 2000 + b'"}'
    announced = locked.client.post("/v1/completions", content=body, headers=bearer("sesame"))

    def pieces():
        yield from (body[i : i + 100] for i in range(0, len(body), 100))

    chunked = locked.client.post("/v1/completions", content=pieces(), headers=bearer("sesame"))
    for reply in (announced, chunked):
        assert reply.status_code == 413
        assert reply.json()["error"]["message"] == "the body exceeds 1000 bytes"
    fits = locked.client.post(
        "/v1/completions", content=b'{"prompt": "a"}', headers=bearer("sesame")
    )
    assert fits.status_code == 200


#: A request whose body does not arrive.
HALF = (
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer sesame\r\n"
    b"Content-Length: 100\r\n\r\n{"
)


def test_a_body_that_does_not_arrive_is_408(locked):
    with locked.connect() as connection:
        connection.sendall(HALF)
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_leaves_within_its_body_leaves_nothing_behind_b100(locked):
    with locked.connect() as connection:
        connection.sendall(HALF)
    before = 'minillm:http_requests_total{method="POST",route="/v1/completions",status="499"}'

    def counted():
        text = locked.client.get("/metrics", headers=bearer("sesame")).text
        return before in text

    eventually(counted)
    assert locked.num_left == 0


def test_an_id_is_echoed_if_it_is_a_harmless_one_b113(server):
    reply = server.client.get("/health", headers={"X-Request-Id": "job-7:a.b_C"})
    assert reply.headers["x-request-id"] == "job-7:a.b_C"
    ids = {server.client.get("/health").headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
    for bad in (b"a" * 129, b"two words", b"caf\xc3\xa9", b"<b>", b"a;b"):
        reply = server.client.get("/health", headers={b"X-Request-Id": bad})
        assert reply.status_code == 400, bad
        assert reply.headers["x-request-id"].startswith("req-")


def test_two_with_one_id_are_two_and_a_third_may_have_it_after_them_b41(server):
    """The id is the client's; the engine's own names are others."""
    body = {"prompt": "hello", "max_tokens": 40, "ignore_eos": True, "temperature": 0}

    def ask():
        headers = {"X-Request-Id": "job-1"}
        return server.client.post("/v1/completions", json=body, headers=headers)

    with ThreadPoolExecutor() as threads:
        replies = [future.result() for future in [threads.submit(ask) for _ in range(2)]]
    replies.append(ask())
    assert {reply.headers["x-request-id"] for reply in replies} == {"job-1"}
    assert len({reply.json()["id"] for reply in replies}) == 3
    assert len({reply.json()["choices"][0]["text"] for reply in replies}) == 1


def raw(server, request):
    """What a server says to bytes."""
    with server.connect() as connection:
        reply = b""
        with suppress(OSError):  # it may be refused before it is whole
            connection.sendall(request)
        with suppress(OSError):
            while piece := connection.recv(2**16):
                reply += piece
        return reply


def test_headers_that_are_too_long_are_refused_b113(server):
    """100 headers of 64 KB, an id of 1 MB, an id with a line feed in it."""
    begin = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    many = b"".join(b"X-%d: " % i + b"a" * 65536 + b"\r\n" for i in range(100))
    huge = b"X-Request-Id: " + b"a" * 2**20 + b"\r\n"
    folded = b"X-Request-Id: a\r\n b\r\n"
    for headers in (many, huge):
        reply = raw(server, begin + headers + b"\r\n")
        assert reply == b"" or reply.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
    assert raw(server, begin + folded + b"\r\n").startswith(b"HTTP/1.1 400 ")
    assert server.client.get("/health").status_code == 200


def test_headers_between_the_limits_get_431_b113(server):
    """Below what uvicorn reads at all, and in servers that read more."""

    async def ask(size):
        transport = httpx.ASGITransport(server.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            return await client.get("/health", headers={"X-Long": "a" * size})

    reply = run_async(ask(2**16))
    assert (reply.status_code, reply.json()["error"]["type"]) == (431, "invalid_request_error")
    assert run_async(ask(2**10)).status_code == 200
    assert server.client.get("/health", headers={"X-Long": "a" * 33_000}).status_code == 431


@pytest.mark.parametrize("value", ["-1", "a", "1e3", "9" * 30])
def test_a_length_that_is_none_is_refused(server, value):
    request = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {value}\r\n"
    assert raw(server, request.encode() + b"Connection: close\r\n\r\n").startswith(
        (b"HTTP/1.1 400 ", b"HTTP/1.1 413 ")
    )


def test_other_origins_are_let_in_only_if_they_are_named(server, locked):
    ask = {"Origin": "https://course.example", "Access-Control-Request-Method": "POST"}
    allowed = locked.client.options("/v1/completions", headers=ask)
    assert allowed.headers["access-control-allow-origin"] == "https://course.example"
    stranger = locked.client.options(
        "/v1/completions", headers={**ask, "Origin": "https://elsewhere.example"}
    )
    assert "access-control-allow-origin" not in stranger.headers
    by_default = server.client.options("/v1/completions", headers=ask)
    assert "access-control-allow-origin" not in by_default.headers


def test_what_nobody_foresaw_is_500_without_a_traceback(start, monkeypatch, caplog):
    from minillm_serve.server import tokens

    with start() as running:

        async def broken(*args):
            raise KeyError("the secret of /somewhere")

        monkeypatch.setattr("minillm_serve.server.routes_api.tokenize", broken)
        headers = {"X-Request-Id": "job-9"}
        reply = running.client.post("/tokenize", json={"prompt": "a"}, headers=headers)
        assert (reply.status_code, reply.headers["x-request-id"]) == (500, "job-9")
        assert reply.json()["error"]["code"] == "internal_error"
        assert "secret" not in reply.text
        assert "job-9" in reply.text
        assert "the secret of /somewhere" in caplog.text
        assert running.client.get("/health").status_code == 200
    assert tokens.tokenize is not broken
