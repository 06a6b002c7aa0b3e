"""ex06's caches in the real engine, around a memory that knows whose tokens lie in it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from minillm_serve.core import ContinuousScheduler, MakePrefixCache, RadixPrefixCache
from minillm_serve.core import Sequence as TokenSequence
from minillm_serve.course.exercises.exercise import Case, CheckFailed
from minillm_serve.parts.rehearsal import Visit, rehearse, words


def service(*visits: Visit, num_blocks: int = 40) -> Case:
    """A case: who comes when, and with which prompt; blocks hold 4 tokens."""
    return {"visits": list(visits), "num_blocks": num_blocks}


def described(case: Case) -> str:
    """Who comes, in one line."""
    prompts = [len(visit.prompt) for visit in case["visits"]]
    return (
        f"{len(prompts)} requests with prompts of {min(prompts)} to {max(prompts)} tokens, "
        f"{case['num_blocks']} blocks of 4"
    )


def serve(answer: Any, case: Case) -> dict[str, Any]:
    """The learner's side: everybody is served, and the engine finds any block that is not right."""
    return _served(answer, case)


def _served(prefix_cache: MakePrefixCache | None, case: Case) -> dict[str, Any]:
    seen = list[TokenSequence]()

    class Listening(ContinuousScheduler):
        def add(self, sequence: TokenSequence, *siblings: TokenSequence) -> None:
            seen.append(sequence)
            super().add(sequence, *siblings)

    served = rehearse(
        case["visits"],
        scheduler=Listening,
        prefix_cache=prefix_cache,
        num_blocks=case["num_blocks"],
        max_num_batched_tokens=32,
    )
    seen.sort(key=lambda sequence: int(sequence.request.request_id))
    return {
        "answers": [sequence.token_ids[sequence.num_prompt_tokens :] for sequence in seen],
        "hits": served.prefix.hits,
        "queries": served.prefix.queries,
        "leaked": served.leaked,
    }


def judge_service(case: Case, got: Any) -> None:
    """The tokens of an engine without a cache, and the hits of ours.

    Raises:
        CheckFailed: saying who was served wrong, or what was computed in vain.
    """
    if not isinstance(got, dict):
        raise CheckFailed("the log of the service is not the one that was kept")
    alone, ours = _served(None, case), _served(RadixPrefixCache, case)
    for number, right in enumerate(alone["answers"]):
        answers = got.get("answers")
        told = answers[number] if isinstance(answers, list) and number < len(answers) else None
        if told != right:
            raise CheckFailed(
                f"request {number} is not answered what an engine without a cache answers",
                expected=right,
                got=told,
            )
    if got.get("leaked") != 0:
        raise CheckFailed(
            "blocks are in use when everybody has left", expected=0, got=got["leaked"]
        )
    if got.get("hits") != ours["hits"]:
        raise CheckFailed(
            f"of {ours['queries']} prompt tokens that were looked up, another number was found "
            "than the engine's own cache finds: what was published is not found again, or was "
            "forgotten too early",
            expected=ours["hits"],
            got=got.get("hits"),
        )


def twin_cases(rng: random.Random) -> Sequence[Case]:
    """The same prompt again and again: together, later, longer, and with a salt."""
    hello = words(rng.randrange(10**6), 8)
    long = hello + words(rng.randrange(10**6), rng.randrange(3, 9))
    return [
        service(Visit(0, hello, 2), Visit(9, hello, 2)),
        service(
            Visit(0, hello, 5),
            Visit(0, hello, 3),
            Visit(2, long, 6),
            Visit(4, hello, 2, cache_salt="a secret"),
            Visit(20, long, 4),
            Visit(22, hello[:7], 3),
        ),
    ]


def crowd_cases(rng: random.Random) -> Sequence[Case]:
    """Questions behind three system prompts, in so few blocks that some are taken back."""
    systems = [words(rng.randrange(10**6), 10 + 3 * n) for n in range(3)]
    visits, step = [], 0
    for number in range(24):
        question = words(10**6 + number, rng.randrange(1, 10))
        visits.append(Visit(step, rng.choice(systems) + question, rng.randrange(2, 12)))
        step += rng.randrange(4)
    return [service(*visits, num_blocks=24)]
