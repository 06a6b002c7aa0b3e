"""How the next token is to be chosen, and when to stop choosing."""

import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minillm_serve.core.structured_outputs import StructuredOutputsParams

#: Temperatures below this are treated as 0 (greedy): dividing by them overflows float32.
GREEDY_EPSILON = 1e-6
#: No temperature is higher; float32, which logits are divided in, would not hold any.
HOTTEST = 1e6
#: More answers to one prompt than this are surely a slip, and would keep everybody else waiting.
MOST_ANSWERS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling parameters of one request, validated on construction. Names follow vLLM.

    Logits go through these in order: `structured_outputs`, `logit_bias` and `min_tokens`, the
    penalties, then (unless greedy) `temperature`, `top_k`, `top_p` and `min_p`.

    Attributes:
        n: answers to give to the same prompt, drawn with the seeds seed, seed + 1, ...
        temperature: 0 (or anything below 1e-6) means greedy; otherwise logits are divided by it, up
            to 1e6, where all tokens are equally likely.
        top_k: keep the k most likely tokens, of equals the lower ids; 0 or -1 keep all.
        top_p: keep the smallest set of most likely tokens whose probability reaches top_p, in
            [0, 1], of what top_k left. The most likely token is always kept.
        min_p: drop tokens less likely than min_p times the most likely one, in [0, 1].
        presence_penalty: subtracted once from the logit of every token generated so far.
        frequency_penalty: subtracted as often as the token was generated.
        repetition_penalty: logits of tokens in prompt or output are divided by it if positive,
            multiplied if negative (Keskar et al., 2019); above 0, and 1 changes nothing.
        logit_bias: added to the logits of single ids, each from -100 to 100.
        min_tokens: neither EOS nor a stop token or string ends the answer before so many tokens.
        max_tokens: most tokens to generate; None means up to the context limit.
        stop: strings that end the generation; the text is cut before the first of them.
        include_stop_str_in_output: leave the stop string in the text.
        stop_token_ids: further ids that end the generation, as EOS does.
        ignore_eos: keep generating past the model's EOS ids.
        seed: makes this request's draws reproducible, whatever else is in its batch. None draws a
            seed from the engine's.
        logprobs: return the log probability of every generated token and of so many of the most
            likely ones; 0 returns the generated token's alone, None nothing.
        prompt_logprobs: the same for the prompt's tokens.
        skip_special_tokens: leave special tokens out of the text (they stay in the ids).
        structured_outputs: what shape the answer is to have. It ends where the shape may end, by
            EOS; where nothing else may come, `min_tokens` gives way. (If `max_tokens`, or a stop
            string, ends it before, it is a beginning of that shape.) As in vLLM, `logprobs` are
            of the tokens that may come.

    Raises:
        ValueError: naming the parameter, its value and the allowed range.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    min_tokens: int = 0
    max_tokens: int | None = 16
    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    structured_outputs: StructuredOutputsParams | None = None

    def __post_init__(self) -> None:
        _integer("n", self.n, at_least=1)
        if self.n > MOST_ANSWERS:
            raise ValueError(f"n={self.n}: at most {MOST_ANSWERS} answers to one prompt")
        _number("temperature", self.temperature, at_least=0.0, at_most=HOTTEST)
        _integer("top_k", self.top_k, at_least=-1)
        _number("top_p", self.top_p, at_least=0.0, at_most=1.0)
        _number("min_p", self.min_p, at_least=0.0, at_most=1.0)
        _number("presence_penalty", self.presence_penalty, at_least=-2.0, at_most=2.0)
        _number("frequency_penalty", self.frequency_penalty, at_least=-2.0, at_most=2.0)
        _number("repetition_penalty", self.repetition_penalty, at_least=1e-3, at_most=1e3)
        _integer("min_tokens", self.min_tokens, at_least=0)
        for name, least in (("max_tokens", 1), ("logprobs", 0), ("prompt_logprobs", 0)):
            if getattr(self, name) is not None:
                _integer(name, getattr(self, name), at_least=least)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens={self.min_tokens} exceeds max_tokens={self.max_tokens}")
        if self.seed is not None:
            _integer("seed", self.seed)
        _shape(self.structured_outputs, self.ignore_eos)
        # Lists are what people pass; tuples and copies keep what was validated unchangeable.
        object.__setattr__(self, "logit_bias", _bias(self.logit_bias))
        object.__setattr__(self, "stop", _strings("stop", self.stop))
        object.__setattr__(self, "stop_token_ids", _ids("stop_token_ids", self.stop_token_ids))

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken, with no draw."""
        return self.temperature < GREEDY_EPSILON

    @property
    def filters(self) -> bool:
        """Whether top_k, top_p or min_p exclude anything."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def penalizes(self) -> bool:
        """Whether tokens already seen change the logits."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1)


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


def _ids(name: str, values: Any) -> tuple[int, ...]:
    if isinstance(values, (str, bytes)) or (
        values is not None and not isinstance(values, Iterable)
    ):
        raise ValueError(f"{name}={values!r}: expected a list of token ids")
    ids = tuple(values or ())
    for value in ids:
        _integer(f"{name} entry", value, at_least=0)
    return ids


def _strings(name: str, values: Any) -> tuple[str, ...]:
    strings = (values,) if isinstance(values, str) else tuple(values or ())
    for value in strings:
        if not isinstance(value, str) or not value:
            raise ValueError(f"{name} entry={value!r}: expected a string of at least one character")
    return strings


def _bias(values: Any) -> dict[int, float]:
    if values is not None and not isinstance(values, Mapping):
        raise ValueError(f"logit_bias={values!r}: expected a mapping from token ids to numbers")
    bias = dict(values or {})
    for token, value in bias.items():
        _integer("logit_bias key", token, at_least=0)
        _number(f"logit_bias[{token}]", value, at_least=-100.0, at_most=100.0)
    return bias


def _shape(value: Any, ignores_eos: bool) -> None:
    if value is not None and not isinstance(value, StructuredOutputsParams):
        raise ValueError(
            f"structured_outputs={value!r:.80}: expected StructuredOutputsParams(json=...)"
        )
    if value is not None and ignores_eos:
        raise ValueError("ignore_eos with structured_outputs, which end by EOS: drop one of them")
