"""How the next token is to be chosen, and when to stop choosing."""

import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: Temperatures below this are treated as 0 (greedy): dividing by them overflows float32.
GREEDY_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling parameters of one request, validated on construction. Names follow vLLM.

    Attributes:
        temperature: 0 (or anything below 1e-6) means greedy; otherwise logits are divided by it.
        top_k: keep the k most likely tokens; 0 or -1 keep all.
        top_p: keep the smallest set of most likely tokens whose probability reaches top_p, in
            (0, 1]. The most likely token is always kept.
        min_p: drop tokens less likely than min_p times the most likely one, in [0, 1].
        max_tokens: most tokens to generate; None means up to the context limit.
        stop_token_ids: further ids that end the generation, as EOS does.
        ignore_eos: keep generating past the model's EOS ids.
        seed: makes this request's draws reproducible, whatever else is in its batch. None draws a
            seed from the engine's.
        skip_special_tokens: leave special tokens out of the text (they stay in the ids).

    Raises:
        ValueError: naming the parameter, its value and the allowed range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int | None = 16
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        _number("temperature", self.temperature, at_least=0.0)
        _integer("top_k", self.top_k, at_least=-1)
        _number("top_p", self.top_p, at_least=0.0, at_most=1.0)
        _number("min_p", self.min_p, at_least=0.0, at_most=1.0)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, at_least=1)
        if self.seed is not None:
            _integer("seed", self.seed)
        # Lists are what people pass; a tuple keeps the dataclass hashable and unchangeable.
        object.__setattr__(self, "stop_token_ids", _ids("stop_token_ids", self.stop_token_ids))

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken, with no draw."""
        return self.temperature < GREEDY_EPSILON


def _number(
    name: str, value: Any, *, at_least: float = -math.inf, at_most: float = math.inf
) -> None:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or not at_least <= value <= at_most:
        bound = (
            f"at least {at_least:g}" if at_most == math.inf else f"in [{at_least:g}, {at_most:g}]"
        )
        raise ValueError(f"{name}={value!r}: expected a finite number {bound}")


def _integer(name: str, value: Any, *, at_least: int | None = None) -> None:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or (at_least is not None and value < at_least):
        bound = "" if at_least is None else f" of at least {at_least}"
        raise ValueError(f"{name}={value!r}: expected an integer{bound}")


def _ids(name: str, values: Iterable[int] | None) -> tuple[int, ...]:
    if isinstance(values, (str, bytes)) or (
        values is not None and not isinstance(values, Iterable)
    ):
        raise ValueError(f"{name}={values!r}: expected a list of token ids")
    ids = tuple(values or ())
    for value in ids:
        _integer(f"{name} entry", value, at_least=0)
    return ids
