"""ex07's rule in the real engine: a tiny model, and drafts that are looked up in its own text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from torch import Tensor

from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.course.exercises.exercise import Case, CheckFailed
from minillm_serve.runtime.spec.accept import Accepted, AcceptRule, accept

NUM_DRAFTS = 4


def described(case: Case) -> str:
    """Who asks, in one line."""
    greedy = case["temperatures"].count(0)
    return (
        f"{len(case['prompts'])} prompts, {greedy} of them greedy, {case['max_tokens']} tokens "
        f"each, up to {NUM_DRAFTS} drafts"
    )


def serve(answer: Any, case: Case) -> dict[str, Any]:
    """The learner's side: what everybody is answered, and how many drafts were kept."""

    def rule(p: Tensor, q: Tensor, drafts: Tensor, lengths: Tensor, draws: Tensor) -> Accepted:
        return Accepted(*answer(p, q, drafts, lengths, draws))

    return _served(rule, case)


def _served(rule: AcceptRule | None, case: Case) -> dict[str, Any]:
    from minillm_serve.course.exercises.tiny_engine import speculate

    requests = [
        (prompt, _params(temperature, case["max_tokens"], seed))
        for seed, (prompt, temperature) in enumerate(
            zip(case["prompts"], case["temperatures"], strict=True)
        )
    ]
    written, stats = speculate(requests, case["seed"], rule, NUM_DRAFTS)
    return {"written": written, "kept": stats.num_accepted_tokens, "drafts": stats.num_draft_tokens}


@lru_cache(maxsize=4)  # a class is graded on the same few cases
def _expected(
    prompts: tuple[tuple[int, ...], ...],
    temperatures: tuple[float, ...],
    max_tokens: int,
    seed: int,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is served without drafts, and by our rule."""
    case = {
        "prompts": [list(prompt) for prompt in prompts],
        "temperatures": temperatures,
        "max_tokens": max_tokens,
        "seed": seed,
    }
    return _served(None, case), _served(accept, case)


def _params(temperature: float, max_tokens: int, seed: int) -> SamplingParams:
    return SamplingParams(
        temperature=temperature, max_tokens=max_tokens, ignore_eos=True, seed=seed
    )


def judge_service(case: Case, got: Any) -> None:
    """Greedy requests get what they get without drafts, the others what our rule gives them.

    Raises:
        CheckFailed: saying who was answered wrong, or that nothing was gained.
    """
    if not isinstance(got, dict) or not isinstance(got.get("written"), list):
        raise CheckFailed("the log of the service is not the one that was kept")
    without, ours = _expected(
        tuple(map(tuple, case["prompts"])),
        tuple(case["temperatures"]),
        case["max_tokens"],
        case["seed"],
    )
    for number, temperature in enumerate(case["temperatures"]):
        right = (ours if temperature else without)["written"][number]
        told = got["written"][number] if number < len(got["written"]) else None
        if told != right:
            what = (
                f"a temperature of {temperature} is not answered what the engine's own rule gives "
                "by the same draws"
                if temperature
                else "temperature 0 is not answered what the engine answers without any drafts"
            )
            raise CheckFailed(f"request {number} with {what}", expected=right, got=told)
    if got.get("kept") != ours["kept"]:
        raise CheckFailed(
            f"the tokens are right, but of {ours['drafts']} drafts others are kept than by the "
            "engine's own rule. With fewer, steps are lost: each draft that is kept saves one",
            expected=ours["kept"],
            got=got.get("kept"),
        )


def service_cases(rng: random.Random) -> Sequence[Case]:
    """Prompts that repeat themselves; greedy answers soon do as well."""
    word = [rng.randrange(64) for _ in range(3)]
    return [
        {
            "prompts": [word * 3, [5, *word, 9, *word], [rng.randrange(64)]],
            "temperatures": [0, 0.7, 0],
            "max_tokens": 24,
            "seed": rng.randrange(10**6),
        }
    ]
