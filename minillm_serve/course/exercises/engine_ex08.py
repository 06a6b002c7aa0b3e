"""ex08's quantizer in the real engine: a tiny model whose cache holds codes and scales."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from minillm_serve.course.exercises.exercise import Case, CheckFailed
from minillm_serve.runtime.kv_quantizer import Int8Quantizer


def serve(answer: Any, case: Case) -> list[list[int]]:
    """The learner's side: what everybody is answered.

    Raises:
        NotImplementedError: nothing is written yet; the engine would call that a faulty part.
    """
    quantizer = answer()
    quantizer.dequantize(*quantizer.quantize(torch.zeros(1, 1, 2)))
    return _served(answer, case["prompts"], case["max_tokens"], case["seed"])


def _served(
    quantizer: Any, prompts: list[list[int]], max_tokens: int, seed: int
) -> list[list[int]]:
    from minillm_serve.course.exercises.tiny_engine import generate
    from minillm_serve.parts import Part
    from minillm_serve.parts.kv_quantizer import fit_kv_quantizer

    fitted = fit_kv_quantizer(Part("kv_quantizer", quantizer), torch.int8)
    return generate(prompts, max_tokens, seed, kv_quantizer=fitted)


@lru_cache(maxsize=4)  # a class is graded on the same few cases
def _expected(prompts: tuple[tuple[int, ...], ...], max_tokens: int, seed: int) -> list[list[int]]:
    return _served(Int8Quantizer, [list(prompt) for prompt in prompts], max_tokens, seed)


def judge_service(case: Case, got: Any) -> None:
    """Everybody gets what they get with the engine's own int8 cache.

    Raises:
        CheckFailed: saying who was answered otherwise.
    """
    prompts = tuple(map(tuple, case["prompts"]))
    right = _expected(prompts, case["max_tokens"], case["seed"])
    if not isinstance(got, list) or len(got) != len(right):
        raise CheckFailed("the log of the service is not the one that was kept")
    for number, (wanted, told) in enumerate(zip(right, got, strict=True)):
        if told != wanted:
            raise CheckFailed(
                f"request {number} is answered otherwise than with the engine's own int8 cache. "
                "Every key and value is read back as code * scale: print both for one row",
                expected=wanted,
                got=told,
            )
