"""A server under test: its client side and its inside."""

import asyncio
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
from tokenizers import processors

from minillm_serve.async_llm import AsyncLLM
from minillm_serve.core.invariants import check_idle
from minillm_serve.server.app import create_app
from minillm_serve.server.background import BackgroundServer
from minillm_serve.server.settings import ServerSettings

#: Seconds; far more than anything takes, since the machine may be busy.
PATIENCE = 60.0


def run_async(work):
    """What a coroutine gives: `asyncio.run`, in a thread of its own.

    (Playwright's synchronous face, of the browser tests, leaves a loop running in this one.)
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def eventually(condition, what="it", patience=PATIENCE):
    """Waits until something holds."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"{what} has not come about"
        time.sleep(0.005)


def slow_down(llm, seconds=0.01):
    """Makes steps last, so that there is time to do something meanwhile."""
    forward = llm.engine.executor.forward

    def slow(inputs):
        time.sleep(seconds)
        return forward(inputs)

    llm.engine.executor.forward = slow
    return llm


def adding_bos(llm):
    """Makes its tokenizer put BOS before every text, as Llama's does."""
    begin = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    llm.tokenizer.backend_tokenizer.post_processor = begin
    assert llm.tokenizer.encode("a")[0] == llm.tokenizer.bos_token_id
    return llm


def events(text):
    """The events of a stream; the last is [DONE], and is left out."""
    lines = [line for line in text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@contextmanager
def unread(running, **body):
    """Sends a request for a completion and reads nothing of its answer; the end hangs up."""
    content = json.dumps({"prompt": "hello", **body}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(content)}\r\n\r\n"
    with running.connect() as connection:
        connection.sendall(head.encode() + content)
        yield connection


class Running:
    """A server in a thread, and a client of it."""

    def __init__(self, llm, *, stuck_after=60.0, tracing=None, **settings):
        self.llm = llm
        self.engine = AsyncLLM(llm, stuck_after=stuck_after)
        settings = {"served_model_name": "tiny", "drain_seconds": 0.0, **settings}
        self.app = create_app(self.engine, ServerSettings(**settings), tracing)
        self.service = self.app.state.service
        self._server = BackgroundServer(self.app)
        self.url = self._server.url
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.client.close()
        self._server.stop()

    def connect(self):
        """A bare connection, with as little room for what comes as there can be."""
        host, port = self.url.removeprefix("http://").split(":")
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE)
        connection.connect((host, int(port)))
        return connection

    def post(self, path, **body):
        """What a path answers to a body."""
        return self.client.post(path, json=body)

    def complete(self, prompt="hello", **body):
        """A completion that must succeed."""
        reply = self.post("/v1/completions", prompt=prompt, **body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def complete_in_pieces(self, prompt="hello", **body):
        """Its events."""
        reply = self.post("/v1/completions", prompt=prompt, stream=True, **body)
        assert reply.status_code == 200, reply.text
        return events(reply.text)

    def chat(self, text="hi", **body):
        """A chat completion that must succeed."""
        messages = [{"role": "user", "content": text}]
        reply = self.post("/v1/chat/completions", messages=messages, **body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def chat_in_pieces(self, text="hi", **body):
        """Its events."""
        messages = [{"role": "user", "content": text}]
        reply = self.post("/v1/chat/completions", messages=messages, stream=True, **body)
        assert reply.status_code == 200, reply.text
        return events(reply.text)

    def figures(self):
        """The samples of /metrics: name with labels -> value."""
        lines = self.client.get("/metrics").text.splitlines()
        samples = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in samples}

    def figure(self, name, **labels):
        """One of them."""
        labels = {"model_name": "tiny", **labels}
        inner = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        return self.figures()[f"minillm:{name}{{{inner}}}"]

    @property
    def num_left(self):
        """Entries in the tables of whoever keeps any about requests."""
        tables = (
            self.llm.llm_engine._collectors,
            self.engine._loop._listeners,
            self.llm.engine.metrics,
            self.llm.engine._book._unfinished,
        )
        return sum(map(len, tables)) + self.service._num_under_way

    def wait_until_idle(self):
        """Waits until nothing of any request is left, and checks the blocks."""
        eventually(lambda: self.num_left == 0, "an idle server")
        check_idle(self.llm.engine.scheduler)
