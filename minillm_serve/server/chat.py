"""`/v1/chat/completions`: the assistant's turn, whole or as it comes."""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from jinja2 import TemplateError

from minillm_serve import prompts
from minillm_serve.async_llm import Answers
from minillm_serve.collector import Collector
from minillm_serve.outputs import CompletionDelta, RequestOutput
from minillm_serve.server.answering import Job, as_delta
from minillm_serve.server.errors import invalid
from minillm_serve.server.limits import check_logprobs_total
from minillm_serve.server.logprobs import chat_logprobs, prompt_logprobs
from minillm_serve.server.schema.base import Reply
from minillm_serve.server.schema.chat import (
    AssistantMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatLogprobs,
    ChatMessage,
    ChatRequest,
    Delta,
)
from minillm_serve.server.service import Service
from minillm_serve.server.token_text import TokensOfAnswer
from minillm_serve.server.usage import UsageInChunks, usage_of


async def chat_ids(
    service: Service,
    messages: Sequence[ChatMessage],
    check: Callable[[str], None] = lambda text: None,
) -> list[int]:
    """Ids of a conversation in the model's template, which may take a while: in a thread.

    Args:
        service: whose model.
        messages: the conversation.
        check: looks at the text before it is cut into tokens, and may raise.

    Raises:
        ApiError: 400: the model has no template, or it does not take such a conversation.
    """
    llm = service.engine.llm
    turns = [{"role": message.role, "content": message.content} for message in messages]
    try:
        name = llm.model_path.name
        return await asyncio.to_thread(prompts.chat_ids, llm.tokenizer, turns, name, check)
    except (TemplateError, ValueError) as error:
        raise invalid(f"messages: {error}"[:500], "messages") from None


class ChatJob(Job):
    """One request for the assistant's turn.

    Args:
        service: answers.
        body: the request.

    Raises:
        ApiError: the request is at fault.
    """

    def __init__(self, service: Service, body: ChatRequest) -> None:
        service.check_model(body.model)
        body.check(service.settings)
        self.streams = body.stream
        self._service = service
        self._body = body
        self._params = body.params()
        self.is_long = not body.stream and (body.logprobs or body.prompt_logprobs is not None)
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": service.settings.served_model_name,
        }
        self._answers: dict[int, TokensOfAnswer] = {}  # by choice, once it has begun
        self._usage = UsageInChunks(body.stream_options)

    async def ask(self) -> Answers:
        """See `Job.ask`."""
        service, body = self._service, self._body
        ids = await chat_ids(
            service, body.messages, lambda text: service.check_text(body, text, "messages")
        )
        service.check_room(body, len(ids), "messages")
        check_logprobs_total(
            self._params,
            [len(ids)],
            max_len=service.max_len,
            most=service.settings.max_logprobs_total,
        )
        return await service.open([ids], self._params, body)

    def whole(self, outputs: Sequence[RequestOutput]) -> Reply:
        """See `Job.whole`."""
        (output,) = outputs
        choices = [
            ChatChoice(
                index=answer.index,
                message=AssistantMessage(content=answer.text),
                logprobs=self._logprobs(TokensOfAnswer(), as_delta(answer)),
                finish_reason=answer.finish_reason,
                stop_reason=answer.stop_reason,
            )
            for answer in output.outputs
        ]
        reply = ChatCompletion(**self._head, choices=choices, usage=usage_of(outputs))
        if (count := self._body.prompt_logprobs) is not None:
            entries = output.prompt_logprobs or []
            reply.prompt_logprobs = prompt_logprobs(entries, count, self._service.vocabulary)
        return reply

    def chunks(self, which: int, delta: CompletionDelta, collector: Collector) -> list[Reply]:
        """See `Job.chunks`."""
        usage = self._usage.fields(which, delta, collector)
        begins = delta.index not in self._answers
        tokens = self._answers.setdefault(delta.index, TokensOfAnswer())
        logprobs = self._logprobs(tokens, delta)
        if not (begins or delta.text or (logprobs and logprobs.content) or delta.finish_reason):
            return []  # all of it is held back: it may become a stop string, or is half a character
        who = {"role": "assistant"} if begins else {}
        what = {"content": delta.text} if delta.text or begins else {}
        choice = ChatChunkChoice(
            index=delta.index,
            delta=Delta(**who, **what),
            logprobs=logprobs,
            finish_reason=delta.finish_reason,
        )
        if delta.finish_reason is not None:
            choice.stop_reason = delta.stop_reason
        return [ChatChunk(**self._head, choices=[choice], **usage)]

    def last_chunks(self, outputs: Sequence[RequestOutput]) -> list[Reply]:
        """See `Job.last_chunks`."""
        if not self._body.includes_usage:
            return []
        return [ChatChunk(**self._head, choices=[], usage=usage_of(outputs))]

    def _logprobs(self, tokens: TokensOfAnswer, delta: CompletionDelta) -> ChatLogprobs | None:
        if (count := self._params.logprobs) is None:
            return None
        return chat_logprobs(tokens.take(delta), count, self._service.vocabulary)
