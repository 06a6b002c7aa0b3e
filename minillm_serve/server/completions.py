"""`/v1/completions`: answers to prompts, whole or as they come."""

import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from minillm_serve.async_llm import Answers
from minillm_serve.collector import Collector
from minillm_serve.core.logprobs import TokenLogprobs
from minillm_serve.outputs import CompletionDelta, RequestOutput
from minillm_serve.server.answering import Job, as_delta
from minillm_serve.server.limits import check_logprobs_total
from minillm_serve.server.logprobs import completion_logprobs, prompt_logprobs
from minillm_serve.server.schema.base import Reply
from minillm_serve.server.schema.completions import (
    Completion,
    CompletionChoice,
    CompletionRequest,
)
from minillm_serve.server.service import Service
from minillm_serve.server.token_text import TokenInText, TokensOfAnswer, tokens_of_prompt
from minillm_serve.server.usage import UsageInChunks, usage_of


class CompletionJob(Job):
    """One request for completions.

    Choices are numbered prompt by prompt: with n answers each, those to prompt p begin at p * n.

    Args:
        service: answers.
        body: the request.

    Raises:
        ApiError: the request is at fault.
    """

    def __init__(self, service: Service, body: CompletionRequest) -> None:
        service.check_model(body.model)
        body.check(service.settings)
        self.streams = body.stream
        self._service = service
        self._body = body
        self._params = body.params()
        has_logprobs = body.logprobs is not None or body.prompt_logprobs is not None
        self.is_long = body.echo or (has_logprobs and not body.stream)
        self._head: dict[str, Any] = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": service.settings.served_model_name,
        }
        self._prompts: list[list[int]] = []
        self._echoes: dict[int, tuple[str, list[TokenInText]]] = {}  # by prompt
        self._answers: dict[int, TokensOfAnswer] = {}  # by choice, once it has begun
        self._usage = UsageInChunks(body.stream_options)

    async def ask(self) -> Answers:
        """See `Job.ask`."""
        self._prompts = await asyncio.to_thread(self._encode)
        for ids in self._prompts:
            self._service.check_room(self._body, len(ids), "prompt")
        check_logprobs_total(
            self._params,
            [len(ids) for ids in self._prompts],
            max_len=self._service.max_len,
            most=self._service.settings.max_logprobs_total,
            times=self._params.n,
        )
        return await self._service.open(self._prompts, self._params, self._body)

    def whole(self, outputs: Sequence[RequestOutput]) -> Reply:
        """See `Job.whole`."""
        choices = []
        for which, output in enumerate(outputs):
            for answer in output.outputs:
                choice = self._choice(which, as_delta(answer), output.prompt_logprobs)
                if (count := self._body.prompt_logprobs) is not None:
                    entries = output.prompt_logprobs or []
                    told = prompt_logprobs(entries, count, self._service.vocabulary)
                    choice.prompt_logprobs = told
                choices.append(choice)
        return Completion(**self._head, choices=choices, usage=usage_of(outputs))

    def chunks(self, which: int, delta: CompletionDelta, collector: Collector) -> list[Reply]:
        """See `Job.chunks`."""
        usage = self._usage.fields(which, delta, collector)
        choice = self._choice(which, delta, collector.prompt_logprobs)
        has_logprobs = choice.logprobs is not None and choice.logprobs.tokens
        if not (choice.text or has_logprobs or choice.finish_reason):
            return []  # all of it is held back: it may become a stop string, or is half a character
        return [Completion(**self._head, choices=[choice], **usage)]

    def last_chunks(self, outputs: Sequence[RequestOutput]) -> list[Reply]:
        """See `Job.last_chunks`."""
        if not self._body.includes_usage:
            return []
        return [Completion(**self._head, choices=[], usage=usage_of(outputs))]

    def _encode(self) -> list[list[int]]:
        for prompt in self._body.prompt:
            if isinstance(prompt, str):
                self._service.check_text(self._body, prompt, "prompt")
        encode = self._service.engine.llm.tokenizer.encode
        return [encode(p) if isinstance(p, str) else p for p in self._body.prompt]

    def _choice(
        self, which: int, delta: CompletionDelta, of_prompt: list[TokenLogprobs | None] | None
    ) -> CompletionChoice:
        index = which * self._params.n + delta.index
        begins = index not in self._answers
        tokens = self._answers.setdefault(index, TokensOfAnswer())
        echo, before = self._echo(which, of_prompt)
        logprobs = None
        if (count := self._body.logprobs) is not None:
            told = [replace(t, offset=t.offset + len(echo)) for t in tokens.take(delta)]
            told = [*before, *told] if begins else told
            logprobs = completion_logprobs(told, count, self._service.vocabulary)
        return CompletionChoice(
            index=index,
            text=echo + delta.text if begins else delta.text,
            logprobs=logprobs,
            finish_reason=delta.finish_reason,
            stop_reason=delta.stop_reason,
        )

    def _echo(
        self, which: int, logprobs: list[TokenLogprobs | None] | None
    ) -> tuple[str, list[TokenInText]]:
        if not self._body.echo:
            return "", []
        if which not in self._echoes:
            prompt = self._body.prompt[which]
            text = prompt if isinstance(prompt, str) else None
            ids, known = self._prompts[which], logprobs if self._body.logprobs is not None else None
            self._echoes[which] = tokens_of_prompt(self._service.vocabulary, ids, text, known or [])
        return self._echoes[which]
