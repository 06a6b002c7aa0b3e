"""Between the routes and the engine: who is let in, what is under way, and the end of it all."""

import asyncio
import math
import re
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from minillm_serve.async_llm import Answers, AsyncLLM
from minillm_serve.core import Overloaded, PartError, RequestRefused, SamplingParams
from minillm_serve.engine_loop import EngineDead
from minillm_serve.outputs import CompletionDelta
from minillm_serve.runtime.sampling.sampler import FAULTS
from minillm_serve.server.errors import SERVER, ApiError, invalid, param_of, unavailable
from minillm_serve.server.limits import check_fits_queue, check_priority
from minillm_serve.server.schema.sampling import SamplingFields
from minillm_serve.server.settings import ServerSettings
from minillm_serve.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from minillm_serve.server.tracing import Tracing

#: How the engine's messages name what a request's field is called otherwise.
ENGINES_NAMES = {"prompt_token_ids": "prompt"}
#: Ends that are no fault of the computation: nothing satisfies the request.
CONTRADICTIONS = frozenset(FAULTS[code] for code in (-2, -3, -4))
_OUR_ID = re.compile(r"request '[0-9a-f]{32}-\d+'")
#: Seconds that the last answers have to be sent, once they have been ended.
LAST_WORDS = 5.0
#: Seconds between two looks whether everybody is done.
LOOK_EVERY = 0.05


class Service:
    """An engine, what it allows, and who is being answered.

    Args:
        engine: serves.
        settings: of the server.
        tracing: hears which requests belong to which trace, if there is any.

    Attributes:
        created: when it began, in Unix time.
        draining: nobody is let in any more.
    """

    def __init__(
        self, engine: AsyncLLM, settings: ServerSettings, tracing: "Tracing | None" = None
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.tracing = tracing
        self.created = int(time.time())
        self.draining = False
        self._num_under_way = 0
        self._in_a_hurry = self._drained = False

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's."""
        return self.engine.llm.llm_engine.vocabulary

    @property
    def max_len(self) -> int:
        """Most tokens of a prompt and its answer."""
        return self.engine.llm.engine.admission.max_len

    @property
    def problem(self) -> str | None:
        """Why nobody can be served just now; None if all is well."""
        return "the server is shutting down" if self.draining else self.engine.health.problem

    def check_model(self, name: str | None) -> None:
        """Whether this is the model that is served. (Without a name it is.)

        Raises:
            ApiError: 404.
        """
        if name is not None and name not in self.settings.model_names:
            message = f"The model {name[:200]!r} does not exist."
            raise ApiError(404, message, param="model", code="model_not_found")

    def check_room(self, body: SamplingFields, num_prompt_tokens: int, field: str) -> None:
        """Whether the context holds a prompt and the answer that is asked for.

        Raises:
            ApiError: 400, naming both and the limit.
        """
        if num_prompt_tokens + (body.asked_tokens or 1) > self.max_len:
            raise self._too_long(body, num_prompt_tokens, field)

    def check_text(self, body: SamplingFields, text: str, field: str) -> None:
        """Whether the context may hold a text, by its length: to cut it into tokens takes long.

        Raises:
            ApiError: 400, as from `check_room`.
        """
        least = self.vocabulary.least_tokens(text)
        if least > self.max_len:
            raise self._too_long(body, least, field, about="at least ")

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        """Counts a request as long as its `async with` lasts.

        Raises:
            ApiError: 503: the server is about to stop, or the engine is not well.
        """
        self.check_well()
        self._num_under_way += 1
        try:
            yield
        finally:
            self._num_under_way -= 1

    def check_well(self) -> None:
        """Raises `ApiError`, 503, if nobody can be served just now."""
        retry = self.settings.retry_after
        if self.draining:
            raise unavailable("the server is shutting down", retry, "shutting_down")
        if self.engine.health.problem is not None:
            raise unavailable("the engine does not run", retry, "engine_dead")

    async def open(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, body: SamplingFields
    ) -> Answers:
        """Queues prompts, all of them or none.

        Raises:
            ApiError: 400 refused, 429 too many wait, 503 the engine is not well.
        """
        check_priority(self.engine.llm, body.priority)
        number = uuid.uuid4().hex
        try:
            asked = [
                await self.engine.ask(
                    ids,
                    params,
                    priority=body.priority,
                    cache_salt=body.cache_salt,
                    deadline=self.settings.max_queue_seconds,
                    request_id=f"{number}-{index}",
                )
                for index, ids in enumerate(prompts)
            ]
            check_fits_queue(self.engine.llm, [request for request, _ in asked])
            names = [request.request_id for request, _ in asked]
            with self.tracing.asking(names) if self.tracing is not None else nullcontext():
                return await self.engine.open(asked)
        except Overloaded as refusal:
            retry = self._retry_after(refusal)
            message = f"too many requests wait already: send this one again in {retry} s"
            raise ApiError(
                429, message, kind="rate_limit_error", code="overloaded", retry_after=retry
            ) from None
        except RequestRefused as error:
            message = _OUR_ID.sub("the request", str(error))
            if message.startswith("structured_outputs"):
                message = message.replace("structured_outputs", body.shape_field, 1)
                raise invalid(message, body.shape_field) from None
            field = param_of(message, ("prompt_token_ids", "stop_token_ids", "logit_bias"))
            raise invalid(message, ENGINES_NAMES.get(field or "", field or "prompt")) from None
        except EngineDead:
            raise self.dead() from None
        except PartError:
            raise self.failed() from None

    def _retry_after(self, refusal: Overloaded) -> int:
        """Whole seconds, as HTTP wants them; what the door says, if that is more than our least."""
        return max(self.settings.retry_after, math.ceil(refusal.retry_after or 0))

    def dead(self) -> ApiError:
        """The engine has stopped, or is stuck."""
        return unavailable("the engine has stopped", self.settings.retry_after, "engine_dead")

    def failed(self) -> ApiError:
        """Something inside has failed: this request, or everybody's."""
        if not self.engine.health.alive or self.engine.llm.llm_engine.fault is not None:
            return self.dead()
        message = "the computation failed for this request; others are not concerned"
        return ApiError(500, message, kind=SERVER, code="computation_failed")

    def check_delta(self, delta: CompletionDelta) -> None:
        """Whether an answer goes on, or has ended as it should.

        Raises:
            ApiError: 400 no token can follow by what was asked for, 500 the computation failed,
                503 it was never begun or had to be broken off.
        """
        retry = self.settings.retry_after
        match delta.finish_reason:
            case "deadline":
                message = "the request waited too long and was given up: send it again later"
                raise unavailable(message, retry, "deadline")
            case "abort":
                raise unavailable("the server is shutting down", retry, "shutting_down")
            case "error":
                if delta.error in CONTRADICTIONS:
                    raise invalid(delta.error or "", code="no_token_left")
                raise self.failed()

    async def drain(self, seconds: float) -> None:
        """Lets nobody in any more, and waits for those who are being answered.

        Whoever is not done in time is told so, as the last that he hears. Then the engine stops.
        Does nothing the second time.
        """
        self.draining = True
        if self._drained:
            return
        self._drained = True
        end = time.monotonic() + seconds
        while self._num_under_way and time.monotonic() < end and not self._in_a_hurry:
            await asyncio.sleep(LOOK_EVERY)
        self.engine.abort_all()
        end = time.monotonic() + LAST_WORDS
        while self._num_under_way and time.monotonic() < end:
            await asyncio.sleep(LOOK_EVERY)
        is_well = self.engine.health.problem is None
        await self.engine.stop(LAST_WORDS if is_well else 0.0)  # one that is stuck does not stop

    def hurry(self) -> None:
        """Ends the waiting of `drain`. A signal handler may call it."""
        self._in_a_hurry = True

    def _too_long(
        self, body: SamplingFields, num_prompt_tokens: int, field: str, about: str = ""
    ) -> ApiError:
        asked = body.asked_tokens
        answer = "1 or more" if asked is None else str(asked)
        return invalid(
            f"This model's maximum context length is {self.max_len} tokens. However, you requested "
            f"{about}{num_prompt_tokens + (asked or 1)} tokens ({about}{num_prompt_tokens} in the "
            f"{field}, {answer} for the answer). Shorten one of them.",
            field,
            "context_length_exceeded",
        )
