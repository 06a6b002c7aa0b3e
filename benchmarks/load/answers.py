"""Reads what a client has noted down: HTTP, events, tokens."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import h11

from benchmarks.load.client import PATH, Recording
from minillm_serve.sim.metrics import TokenLog

#: The server is full, or about to stop, and says so.
REFUSALS = (429, 503)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request. Times are the client's clock, in seconds.

    Attributes:
        due: when it was to be sent; latencies count from here.
        sent: when it was.
        status: of HTTP; None if there was no answer.
        headers: of the answer, names in lower case.
        pieces: when each piece of text came.
        text: all of them.
        prompt_tokens: as the usage says.
        output_tokens: likewise: what was generated, whether or not its text came in pieces.
        problem: what went wrong, in the server's own words; None if all is well.
    """

    due: float
    sent: float
    status: int | None
    headers: dict[str, str]
    pieces: tuple[float, ...]
    text: str
    prompt_tokens: int
    output_tokens: int
    problem: str | None

    @property
    def is_served(self) -> bool:
        """Whether it was answered to the end."""
        return self.problem is None

    @property
    def is_refused(self) -> bool:
        """Whether it was turned away at the door, with a status that says so."""
        return self.status in REFUSALS

    def token_log(self) -> TokenLog:
        """When its tokens came. Tokens whose text came in one piece came at once.

        The usage says how many there are. If they are more than pieces (drafts that were right,
        halves of characters), the further ones are spread over the pieces as evenly as can be:
        first, last and mean, all that latencies are made of, do not depend on it.

        Raises:
            ValueError: it was not served.
        """
        if not self.is_served:
            raise ValueError(f"no tokens: {self.problem}")
        tokens, pieces = max(self.output_tokens, 1), self.pieces
        if tokens == 1:
            return TokenLog(self.due, pieces[:1])
        last = len(pieces) - 1
        return TokenLog(self.due, tuple(pieces[i * last // (tokens - 1)] for i in range(tokens)))


def read(recording: Recording) -> Answer:
    """Reads one recording. Nothing that a server sends raises: it becomes a `problem`."""
    status, headers, body, whole = _http(recording.heard)
    problem = recording.problem
    events = list(_events(body)) if status == 200 else []
    chunks, pieces = [], []
    for moment, event in events:
        chunk = _json(event)
        if "error" in chunk:
            problem = problem or _message(chunk)
        chunks.append(chunk)
        if any(_says_something(choice) for choice in chunk.get("choices") or ()):
            pieces.append(moment)
    usage = next((c["usage"] for c in reversed(chunks) if c.get("usage")), None)
    if problem is None and status != 200:
        problem = _message(_json(b"".join(data for _, data in body))) if status else "no answer"
    if problem is None and not whole:
        problem = "the answer breaks off"
    if problem is None and (not pieces or usage is None):
        problem = "the stream has no usage" if pieces else "the stream is empty"
    usage = usage or {}
    return Answer(
        due=recording.due,
        sent=recording.sent,
        status=status,
        headers=headers,
        pieces=tuple(pieces),
        text="".join(choice.get("text") or "" for c in chunks for choice in c.get("choices") or ()),
        prompt_tokens=usage.get("prompt_tokens", 0),
        output_tokens=usage.get("completion_tokens", 0),
        problem=problem,
    )


def _http(
    heard: Sequence[tuple[float, bytes]],
) -> tuple[int | None, dict[str, str], list[tuple[float, bytes]], bool]:
    """Status, headers, the body's bytes with their moments, and whether it came to its end."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=2**20)
    connection.send(h11.Request(method="POST", target=PATH, headers=[("Host", "any")]))
    connection.send(h11.EndOfMessage())
    status, headers, body, whole = None, {}, [], False
    try:
        for moment, data in [*heard, (0.0, b"")]:
            connection.receive_data(data)
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Response):
                    status = event.status_code
                    headers = {name.decode(): value.decode() for name, value in event.headers}
                elif isinstance(event, h11.Data):
                    body.append((moment, bytes(event.data)))
                elif isinstance(event, h11.EndOfMessage):
                    whole = True
                elif isinstance(event, h11.ConnectionClosed):
                    break
    except h11.RemoteProtocolError:
        whole = False
    return status, headers, body, whole


def _events(body: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """The data of each server-sent event, and when its last byte came."""
    rest = b""
    for moment, data in body:
        *events, rest = (rest + data.replace(b"\r\n", b"\n")).split(b"\n\n")
        for event in events:
            if event.startswith(b"data:") and (content := event[5:].strip()) != b"[DONE]":
                yield moment, content


def _says_something(choice: Any) -> bool:
    return bool(choice.get("text") or choice.get("finish_reason"))


def _json(text: bytes) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError:
        return {"error": {"message": f"no JSON: {text[:80]!r}"}}
    return read if isinstance(read, dict) else {}


def _message(reply: dict[str, Any]) -> str:
    error = reply.get("error") or reply
    return str(error.get("message", error) if isinstance(error, dict) else error)[:200]
