"""People who ask a real server over HTTP: so many a second, whether it can serve them or not."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

#: Seconds after which a question is given up.
TIMEOUT = 60.0


@dataclass(slots=True)
class Visit:
    """One question and what became of it. Times in seconds, of one clock.

    Attributes:
        sent: when it was asked.
        tokens: when each piece of the answer came; a piece is a token, or a few.
        status: of HTTP; 0 as long as there is none, or if the connection broke.
        retry_after: what the server said, in seconds; None if it said nothing.
        ended: when it was over.
    """

    sent: float
    tokens: list[float] = field(default_factory=list)
    status: int = 0
    retry_after: float | None = None
    ended: float | None = None

    @property
    def ttft(self) -> float | None:
        """Seconds to the first piece of the answer."""
        return self.tokens[0] - self.sent if self.tokens else None


class Crowd:
    """Asks in a thread of its own, from `start` to `stop`; at random moments (a Poisson process).

    An open loop: nobody waits for somebody else's answer before asking. That is how people come,
    and the only load that shows what an overload does.

    Args:
        url: the server's.
        model: its name.
        prompts: to choose from; token ids, so that nobody needs a tokenizer.
        max_tokens: of each answer.
        rate: questions a second; it may be changed while they ask.
        seed: of the moments and the choice.

    Attributes:
        visits: all so far.
        rate: see above.
    """

    def __init__(
        self,
        url: str,
        model: str,
        prompts: Sequence[Sequence[int]],
        *,
        max_tokens: int = 24,
        rate: float = 1.0,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url, self.model, self.max_tokens = url, model, max_tokens
        self.prompts = [list(prompt) for prompt in prompts]
        self.rate, self.clock = rate, clock
        self.visits: list[Visit] = []
        self._draw = random.Random(seed)
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    @property
    def is_asking(self) -> bool:
        """Whether it has been started, and not stopped."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begins to ask; does nothing if it does already."""
        if not self.is_asking:
            self._stopping.clear()
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._ask_all()), name="crowd", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Asks no more, and hangs up on what is under way. Does nothing the second time."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def ask_for(self, seconds: float) -> list[Visit]:
        """Asks for so long, then waits for the last answers; gives those visits."""
        with ThreadPoolExecutor(1) as thread:  # a notebook has a loop running in this one
            return thread.submit(asyncio.run, self._ask_all(self.clock() + seconds)).result()

    async def _ask_all(self, until: float | None = None) -> list[Visit]:
        first, under_way = len(self.visits), set[asyncio.Task[None]]()
        # Nobody waits for a free connection; and plain HTTP needs no certificates to be loaded.
        options: dict[str, Any] = {"limits": httpx.Limits(max_connections=None), "verify": False}
        async with httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT, **options) as client:
            while not self._stopping.is_set() and (until is None or self.clock() < until):
                # Looks up often, so that a new rate counts at once.
                pause = min(self._draw.expovariate(max(self.rate, 1e-6)), 0.1)
                comes = pause < 0.1
                await asyncio.sleep(pause)
                if comes and self.rate > 0:
                    task = asyncio.create_task(self._ask(client))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
            if until is None:
                for task in under_way:
                    task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        return self.visits[first:]

    async def _ask(self, client: httpx.AsyncClient) -> None:
        visit = Visit(self.clock())
        self.visits.append(visit)
        body = {
            "model": self.model,
            "prompt": self._draw.choice(self.prompts),
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        try:
            async with client.stream("POST", "/v1/completions", json=body) as reply:
                visit.status = reply.status_code
                if "retry-after" in reply.headers:
                    visit.retry_after = float(reply.headers["retry-after"])
                async for line in reply.aiter_lines():
                    if line.startswith("data: {") and json.loads(line[6:]).get("choices"):
                        visit.tokens.append(self.clock())
        except httpx.HTTPError:
            pass  # the server has gone: the status says how far it came
        finally:
            visit.ended = self.clock()
