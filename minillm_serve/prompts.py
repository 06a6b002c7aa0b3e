"""What people pass to `LLM.generate`, in all its forms, as lists."""

from collections.abc import Iterable, Mapping, Sequence

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
