"""The two levers of fewer bits, on this machine: what they buy is measured, what they cost was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minillm_serve import LLM
from minillm_serve.course.chapter08.record import Record
from minillm_serve.course.chapter09.real import decode_steps

#: People on the full server, and tokens of each one's prompt: so that caches are read, too.
BATCH, PROMPT_TOKENS = 16, 48
#: Tokens that each is given, alone and in the crowd.
ALONE, TOGETHER = 24, 10


@dataclass(frozen=True, slots=True)
class Variant:
    """An engine with fewer bits, or the one that it is compared with.

    Attributes:
        name: of the row, as `minillm-serve quality` calls it.
        quantization: of the weights, or None.
        kv_cache_dtype: of keys and values.
    """

    name: str
    quantization: str | None = None
    kv_cache_dtype: str = "auto"


REFERENCE = Variant("reference")
VARIANTS = (
    REFERENCE,
    Variant("KV int8", kv_cache_dtype="int8"),
    Variant("weights int8", quantization="int8"),
    Variant("weights int4", quantization="int4"),
)


@dataclass(frozen=True, slots=True)
class Speed:
    """What a variant's decode steps take here.

    Attributes:
        alone: seconds a token, of somebody who is alone.
        together: tokens a second, of `BATCH` people.
    """

    alone: float
    together: float


def measure(
    make: Callable[[Variant], LLM], variants: Sequence[Variant] = VARIANTS, rounds: int = 2
) -> dict[Variant, Speed]:
    """Times all variants, in turns: so a slow moment of the machine is everybody's.

    Args:
        make: an engine with room for `BATCH` people.
        variants: what to time.
        rounds: turns; of each variant the best counts.
    """
    engines = {variant: make(variant) for variant in variants}
    for llm in engines.values():
        decode_steps(llm, 2, 3)  # the first steps of anything are slow: not counted
    found: dict[Variant, Speed] = {}
    for turn in range(rounds):
        for variant, llm in engines.items():
            times = {"seed": turn, "prompt_tokens": PROMPT_TOKENS}
            _, alone = decode_steps(llm, 1, ALONE, **times)
            _, step = decode_steps(llm, BATCH, TOGETHER, **times)
            best = found.get(variant, Speed(alone, 0.0))
            found[variant] = Speed(min(best.alone, alone), max(best.together, BATCH / step))
    return found


def rows(speeds: dict[Variant, Speed], record: Record) -> list[list[str]]:
    """Lines of a table: what each buys against the reference, and what it costs.

    Name, people in 1 GiB, ms a token alone, that against the reference, tokens a second of `BATCH`
    people, that against the reference, and the change of perplexity.

    Args:
        speeds: of all variants, the reference among them.
        record: of `minillm-serve quality`.
    """
    base, lines = speeds[REFERENCE], []
    measured = {row["name"]: row for row in record.rows}
    plain = measured[REFERENCE.name]
    for variant, speed in speeds.items():
        row = measured[variant.name]
        lost = row["text"]["perplexity"] / plain["text"]["perplexity"] - 1
        lines.append(
            [
                variant.name,
                f"{row['users']} people",
                f"{1e3 * speed.alone:.1f}",
                f"{base.alone / speed.alone:.2f}",
                f"{speed.together:.0f}",
                f"{speed.together / base.together:.2f}",
                f"{lost:+.1%}" if variant is not REFERENCE else "",
            ]
        )
    return lines
