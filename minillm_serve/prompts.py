"""What people pass to `LLM.generate`, in all its forms, as lists."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from minillm_serve.core import RequestRefused, SamplingParams

Prompt = str | Sequence[int]
Message = Mapping[str, str]


def as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several as a list of them; a list of ids is one prompt.

    Raises:
        RequestRefused: naming what is no prompt.
    """
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, Mapping) or not isinstance(prompts, Iterable):
        raise RequestRefused(
            f"prompts={prompts!r}: expected a string, a list of token ids, or a list of those"
        )
    if prompts and all(isinstance(item, int) and not isinstance(item, bool) for item in prompts):
        return [prompts]  # type: ignore[list-item]
    for item in prompts:
        if not isinstance(item, (str, Sequence)):
            raise RequestRefused(
                f"prompt {item!r} is a {type(item).__name__}: expected a string or a list of ids"
            )
    return list(prompts)  # type: ignore[arg-type]


def one_each(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    """Parameters for each of `count` prompts.

    Raises:
        ValueError: they are no `SamplingParams`, or more or fewer than the prompts.
    """
    if params is None:
        return [SamplingParams()] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    if isinstance(params, Mapping) or not all(isinstance(p, SamplingParams) for p in params):
        raise ValueError(f"sampling_params={params!r}: expected SamplingParams, or a list of them")
    if len(params) != count:
        raise ValueError(
            f"{len(params)} sampling_params for {count} prompts: give one, or one for each prompt"
        )
    return list(params)


def one_priority_each(priority: int | Sequence[int], count: int) -> list[int]:
    """A priority for each of `count` prompts.

    Raises:
        ValueError: more or fewer than the prompts.
    """
    if isinstance(priority, int):
        return [priority] * count
    if len(priority) != count:
        raise ValueError(
            f"{len(priority)} priorities for {count} prompts: give one, or one for each prompt"
        )
    return list(priority)


def one_salt_each(salt: str | Sequence[str | None] | None, count: int) -> list[str | None]:
    """A cache salt, or None, for each of `count` prompts.

    Raises:
        ValueError: more or fewer than the prompts, or something else.
    """
    if salt is None or isinstance(salt, str):
        return [salt] * count
    if not isinstance(salt, list | tuple):
        raise ValueError(f"cache_salt={salt!r}: give a string, or a list with one for each prompt")
    if len(salt) != count:
        raise ValueError(
            f"{len(salt)} cache salts for {count} prompts: give one, or one for each prompt"
        )
    return list(salt)


def chat_ids(
    tokenizer: Any,
    messages: Sequence[Message],
    model: str,
    check: Callable[[str], None] = lambda text: None,
) -> list[int]:
    """Ids of a conversation in a tokenizer's chat template, up to the assistant's turn.

    Args:
        tokenizer: transformers' tokenizer.
        messages: the conversation.
        model: its name, for errors.
        check: looks at the text before it is cut into tokens, and may raise.

    Raises:
        ValueError: no messages, or no chat template.
    """
    if not messages:
        raise ValueError("messages is empty: give at least one message")
    for message in messages:
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise ValueError(
                f"message {message!r}: expected {{'role': ..., 'content': ...}}, as in "
                "[{'role': 'user', 'content': 'Hello'}]"
            )
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(f"{model} has no chat template: use generate()")
    text = tokenizer.apply_chat_template(
        [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
    )
    check(text)
    # The template writes the special tokens itself; the tokenizer must not add them again.
    return list(tokenizer.encode(text, add_special_tokens=False))
