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


async def tokenize(service: Service, body: TokenizeRequest) -> TokenizeReply:
    """Cuts a text or a conversation into tokens.

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
    reply = TokenizeReply(count=len(ids), max_model_len=service.max_len, tokens=ids)
    if body.return_token_strs:
        reply.token_strs = [own_text(service.vocabulary, token_id).text for token_id in ids]
    return reply


async def detokenize(service: Service, body: DetokenizeRequest) -> DetokenizeReply:
    """Puts tokens together to a text.

    Raises:
        ApiError: the request is at fault.
    """
    service.check_model(body.model)
    size = service.engine.llm.model_config.vocab_size
    for index, token_id in enumerate(body.tokens):
        if not 0 <= token_id < size:
            message = f"tokens[{index}] is {token_id}, expected an id from 0 to {size - 1}"
            raise invalid(message, "tokens")
    decode = service.engine.llm.tokenizer.decode
    options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
    return DetokenizeReply(prompt=await asyncio.to_thread(decode, body.tokens, **options))
