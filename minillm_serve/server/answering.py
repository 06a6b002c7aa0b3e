"""A request on its way: asked, answered whole or in pieces, and dropped if the client hangs up."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from minillm_serve.async_llm import Answers
from minillm_serve.collector import Collector
from minillm_serve.engine_loop import EngineDead
from minillm_serve.outputs import CompletionDelta, CompletionOutput, RequestOutput
from minillm_serve.server.connection import in_time, send_whole, while_connected
from minillm_serve.server.errors import ApiError, internal
from minillm_serve.server.guard import request_id_of
from minillm_serve.server.schema.base import Reply
from minillm_serve.server.service import Service
from minillm_serve.server.sse import EventStream

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Job(ABC):
    """What an endpoint makes of a request and its answers.

    Attributes:
        streams: whether the answer is sent in pieces.
        is_long: whether a piece of it may take long to write down, for it tells of thousands of
            tokens: then it is done in a thread, so that nobody else waits.
    """

    streams: bool
    is_long: bool

    @abstractmethod
    async def ask(self) -> Answers:
        """Queues what is to be answered.

        Raises:
            ApiError: it will not be answered.
        """

    @abstractmethod
    def whole(self, outputs: Sequence[RequestOutput]) -> Reply:
        """The answer in one piece."""

    @abstractmethod
    def chunks(self, which: int, delta: CompletionDelta, collector: Collector) -> list[Reply]:
        """The events for what has come of one answer to the prompt number `which`."""

    @abstractmethod
    def last_chunks(self, outputs: Sequence[RequestOutput]) -> list[Reply]:
        """The events after everything has come."""


def as_delta(answer: CompletionOutput) -> CompletionDelta:
    """A whole answer as if it had come all at once."""
    return CompletionDelta(
        index=answer.index,
        text=answer.text,
        token_ids=answer.token_ids,
        logprobs=answer.logprobs,
        text_offsets=answer.text_offsets,
        text_end=len(answer.text),
        finish_reason=answer.finish_reason,
        stop_reason=answer.stop_reason,
        error=answer.error,
    )


class Answering(Response):
    """Answers one request. It ends with its client, in whatever phase.

    A stream begins when its first piece is there: until then an error still has a status. (If that
    takes longer than a silence may last, it begins with a comment.)

    Args:
        service: answers.
        job: what.
    """

    def __init__(self, service: Service, job: Job) -> None:
        super().__init__()
        self._service = service
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Speaks ASGI."""
        send = in_time(scope, send, self._service.settings.read_seconds)
        async with self._service.under_way():
            await while_connected(receive, self._answer(scope, send))

    async def _answer(self, scope: Scope, send: Send) -> None:
        async with await self._job.ask() as answers:
            try:
                if self._job.streams:
                    await self._stream(scope, answers, send)
                    return
                async for _, delta in answers:
                    self._service.check_delta(delta)
            except EngineDead:
                raise self._service.dead() from None
            body = await self._write(lambda: self._job.whole(answers.outputs()).json_bytes())
        await send_whole(send, Response(body, media_type="application/json"))

    async def _stream(self, scope: Scope, answers: Answers, send: Send) -> None:
        stream = EventStream(send)
        try:
            while (piece := await self._next(stream, answers)) is not None:
                which, delta = piece
                self._service.check_delta(delta)
                await stream.begin()
                collector = answers.collectors[which]
                job = self._job
                chunks = await self._write(partial(job.chunks, which, delta, collector))
                await stream.send(chunks)
            await stream.send(self._job.last_chunks(answers.outputs()))
        except Exception as error:
            if not stream.begun:
                raise
            await stream.send_error(self._explained(error, request_id_of(scope)))
        await stream.end()

    def _explained(self, error: Exception, request_id: str) -> ApiError:
        """What a client is told of an error in the middle of a stream."""
        if isinstance(error, ApiError):
            return error
        if isinstance(error, EngineDead):
            return self._service.dead()
        logger.error("%s failed in the middle of a stream", request_id, exc_info=error)
        return internal(request_id)

    async def _next(
        self, stream: EventStream, answers: Answers
    ) -> tuple[int, CompletionDelta] | None:
        """What comes next, None after the end; keeps the stream alive meanwhile."""
        longest = self._service.settings.keep_alive_seconds
        while True:
            try:
                async with asyncio.timeout_at(stream.last_sent + longest):
                    return await anext(answers, None)
            except TimeoutError:
                await stream.keep_alive()

    async def _write(self, write: Callable[[], T]) -> T:
        return await asyncio.to_thread(write) if self._job.is_long else write()
