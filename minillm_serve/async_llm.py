"""The engine's asyncio face: `async for piece in engine.stream(prompt)`."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from itertools import count

import torch

from minillm_serve.bell import Bell
from minillm_serve.collector import Collector
from minillm_serve.core import Request, SamplingParams
from minillm_serve.engine_loop import STUCK_AFTER, Asked, EngineDead, EngineLoop, Health
from minillm_serve.llm import LLM
from minillm_serve.outputs import CompletionDelta, RequestOutput
from minillm_serve.prompts import Prompt
from minillm_serve.runtime.structured.compile_queue import CompileQueue
from minillm_serve.runtime.threads import release_threads, share_threads

#: Seconds after which whoever waits for the engine looks whether it is still well.
LOOK_EVERY = 1.0


class AsyncLLM:
    """Serves an event loop's users from an engine that runs in a thread of its own.

    The event loop never waits for a step, and a reader that is slow, or gone, never holds the
    engine: what comes for it lies here until it is read, at most its own `max_tokens`.

        async with AsyncLLM(LLM("smollm2-135m")) as engine:
            async for piece in engine.stream("Once upon a time"):
                print(piece, end="")

    Args:
        llm: which nobody else uses from now on. Give it `max_num_waiting`, so that an overload is
            refused (`core.Overloaded`) rather than queued without end.
        stuck_after: seconds without a finished step after which `health` has a problem.
    """

    def __init__(self, llm: LLM, *, stuck_after: float = STUCK_AFTER) -> None:
        self.llm = llm
        threads = torch.get_num_threads()  # of this thread, which the other one would not have
        release_threads()  # from now on it is the other one who computes
        self._bell = Bell()
        self._loop = EngineLoop(
            llm.llm_engine,
            stuck_after=stuck_after,
            prepare=lambda: share_threads(threads),
            told=self._bell.ring,
        )
        self._numbers = count(1)
        # Apart from the threads that cut texts into tokens: some take a second.
        self._compiling = CompileQueue(llm.grammars)

    @property
    def health(self) -> Health:
        """Whether the engine is alive and gets on."""
        return self._loop.health

    async def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> AsyncIterator[str]:
        """Completes one prompt, piece by piece.

        Leaving the loop early (`break`, an exception, a cancelled task) ends the request, and its
        blocks are free before the next step.

        Args:
            prompt: a string or a list of token ids.
            sampling_params: with n = 1.
            priority: the lower goes first under `LLM(policy="priority")`.
            cache_salt: KV is shared only among those who bring the same.

        Raises:
            ValueError: the prompt can never be served, or several answers are asked for.
            Overloaded: too many wait already.
            EngineDead: the engine has stopped, or is stuck.
            RuntimeError: the computation failed for this request.
        """
        params = sampling_params or SamplingParams()
        if params.n > 1:
            raise ValueError(f"n={params.n}: a stream has one text; open several, or generate()")
        asked = await self.ask(prompt, params, priority=priority, cache_salt=cache_salt)
        async with await self.open([asked]) as answers:
            async for _, delta in answers:
                if delta.error is not None:
                    raise RuntimeError(f"{asked[0].request_id}: {delta.error}")
                if delta.text:
                    yield delta.text

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> RequestOutput:
        """Completes one prompt; all answers, when they are whole. For the rest see `stream`."""
        params = sampling_params or SamplingParams()
        asked = await self.ask(prompt, params, priority=priority, cache_salt=cache_salt)
        async with await self.open([asked]) as answers:
            async for _ in answers:
                pass
            return answers.outputs()[0]

    async def ask(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        deadline: float | None = None,
        request_id: str | None = None,
    ) -> Asked:
        """Makes a request of a prompt.

        What may take long is done in threads: a text is tokenized, structured outputs compiled.

        Args:
            deadline: seconds from now by which it must have begun.
            request_id: unique among all that are served; by default a number.
            others: see `stream`.

        Raises:
            RequestRefused: the structured outputs that are asked for cannot be compiled, or not in
                time.
            Overloaded: too many wait already for theirs to be compiled.
        """
        begin_by = None if deadline is None else self.llm.engine.clock() + deadline
        text: str | None = None
        if isinstance(prompt, str):
            text = prompt
            ids: Sequence[int] = await asyncio.to_thread(self.llm.tokenizer.encode, prompt)
        else:
            ids = prompt
        grammar = await self._compile(params)
        request = Request(
            request_id=request_id or f"async-{next(self._numbers)}",
            prompt_token_ids=tuple(ids),
            params=params,
            priority=priority,
            deadline=begin_by,
            cache_salt=cache_salt,
            grammar=grammar,
        )
        return request, text

    async def _compile(self, params: SamplingParams) -> object | None:
        grammars, shape = self.llm.grammars, params.structured_outputs
        if (known := grammars.find(shape)) is not None or shape is None:
            return known
        compiled = asyncio.wrap_future(self._compiling.submit(shape))
        try:
            while not (await asyncio.wait({compiled}, timeout=LOOK_EVERY))[0]:
                self._compiling.look()
                grammars.find(shape)  # which refuses it if it was given up
            return compiled.result()
        finally:
            compiled.cancel()  # whoever has left does not keep his place

    async def open(self, asked: Sequence[Asked]) -> "Answers":
        """Queues requests, all of them or none.

        Returns:
            What comes for them. It must be closed, as its `async with` does.

        Raises:
            ValueError: one can never be served.
            Overloaded: too many wait already.
            EngineDead: the engine has stopped, or is stuck.
        """
        answers = Answers(self._loop, self._bell, asyncio.get_running_loop())
        future = self._loop.add(asked, answers.tell)
        waited = asyncio.wrap_future(future)
        try:
            while not (await asyncio.wait({waited}, timeout=LOOK_EVERY))[0]:
                self._loop.check()
            answers.collectors = waited.result()
        except (asyncio.CancelledError, EngineDead):
            # It may have come in just now: then it must go out again.
            waited.cancel()
            future.add_done_callback(lambda done: _drop_late(self._loop, done))
            raise
        return answers

    def abort_all(self) -> None:
        """Ends everything that is served; its readers get "abort" as the reason."""
        self._loop.abort_all()

    async def stop(self, timeout: float | None = None) -> bool:
        """Ends the engine's thread once nobody is served any more.

        Returns:
            False if somebody is still served after so many seconds.
        """
        return await asyncio.to_thread(self._loop.stop, timeout)

    async def __aenter__(self) -> "AsyncLLM":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


class Answers:
    """What comes for some requests: an async iterator of (which request, delta).

    Leaving its `async with`, by whatever way, takes the requests out of the engine. The iterator
    raises `EngineDead` if the engine is stuck, rather than wait with it.

    Args:
        engine: serves them.
        bell: of the engine.
        loop: of the reader.

    Attributes:
        collectors: of the requests, in their order, as soon as they are in.
    """

    def __init__(self, engine: EngineLoop, bell: Bell, loop: asyncio.AbstractEventLoop) -> None:
        self.collectors: list[Collector] = []
        self._bell = bell
        self._engine = engine
        self._loop = loop
        self._arrived: deque[tuple[Collector, CompletionDelta]] = deque()
        self._news = asyncio.Event()
        self._num_ended = 0

    def tell(self, collector: Collector) -> None:
        """Hears of something that has come, in the engine's thread."""
        self._arrived.extend((collector, delta) for delta in collector.pop())
        self._bell.remember(self._loop, self._news)

    def outputs(self) -> list[RequestOutput]:
        """Everything that has come, of each request."""
        return [collector.output() for collector in self.collectors]

    def __aiter__(self) -> "Answers":
        return self

    async def __anext__(self) -> tuple[int, CompletionDelta]:
        while not self._arrived:
            if self._num_ended == sum(len(collector.answers) for collector in self.collectors):
                raise StopAsyncIteration
            self._news.clear()
            if not self._arrived:
                await self._wait()
        collector, delta = self._arrived.popleft()
        self._num_ended += delta.finish_reason is not None
        return self.collectors.index(collector), delta

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(LOOK_EVERY):
                await self._news.wait()
        except TimeoutError:
            self._engine.check()

    async def __aenter__(self) -> "Answers":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._engine.drop(self.collectors)


def _drop_late(engine: EngineLoop, added: "Future[list[Collector]]") -> None:
    """Takes out what came in although nobody waits for it any more."""
    if not added.cancelled() and added.exception() is None:
        engine.drop(added.result())
