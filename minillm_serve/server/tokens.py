"""`/tokenize` and `/detokenize`: what the model reads, and what it would read."""

import asyncio

from minillm_serve.server.chat import chat_ids
from minillm_serve.server.errors import invalid
from minillm_serve.server.schema.tokens import (
    DetokenizeReply,
    DetokenizeRequest,
    TokenizeReply,
    TokenizeRequest,
)
from minillm_serve.server.service import Service
from minillm_serve.server.token_text import own_text


async def tokenize(service: Service, body: TokenizeRequest) -> bytes:
    """Cuts a text or a conversation into tokens.

    Returns:
        A `TokenizeReply`, written down in a thread: it may tell of many tokens.

    Raises:
        ApiError: the request is at fault.
    """
    service.check_model(body.model)
    body.check()
    if body.messages is not None:
        ids = await chat_ids(service, body.messages)
    else:
        encode = service.engine.llm.tokenizer.encode
        special = body.add_special_tokens
        ids = await asyncio.to_thread(encode, body.prompt, add_special_tokens=special)
    field = "prompt" if body.messages is None else "messages"
    _check_count(service, len(ids), field)
    return await asyncio.to_thread(_tokens, service, ids, body.return_token_strs)


async def detokenize(service: Service, body: DetokenizeRequest) -> bytes:
    """Puts tokens together to a text.

    Returns:
        A `DetokenizeReply`, written down in a thread.

    Raises:
        ApiError: the request is at fault.
    """
    service.check_model(body.model)
    _check_count(service, len(body.tokens), "tokens")
    return await asyncio.to_thread(_text, service, body.tokens)


def _check_count(service: Service, count: int, field: str) -> None:
    limit = service.settings.max_listed_tokens
    if count > limit:
        message = f"{field}: {count} tokens, at most {limit} at a time: send it in parts"
        raise invalid(message, field)


def _tokens(service: Service, ids: list[int], with_strs: bool) -> bytes:
    reply = TokenizeReply(count=len(ids), max_model_len=service.max_len, tokens=ids)
    if with_strs:
        reply.token_strs = [own_text(service.vocabulary, token_id).text for token_id in ids]
    return reply.json_bytes()


def _text(service: Service, ids: list[int]) -> bytes:
    size = service.engine.llm.model_config.vocab_size
    for index, token_id in enumerate(ids):
        if not 0 <= token_id < size:
            message = f"tokens[{index}] is {token_id}, expected an id from 0 to {size - 1}"
            raise invalid(message, "tokens")
    text = service.engine.llm.tokenizer.decode(
        ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return DetokenizeReply(prompt=text).json_bytes()
