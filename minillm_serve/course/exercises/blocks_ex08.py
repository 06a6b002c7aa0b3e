"""ex08's copy of blocks: codes, scales, and nothing left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from minillm_serve.course.exercises.answers_ex08 import Numbers
from minillm_serve.course.exercises.exercise import Case, CheckFailed


def run_copy(answer: Any, case: Case) -> dict[str, Any]:
    """The learner's side: the cache after the copy, and after the first target was written to."""
    cache = {name: tensor.clone() for name, tensor in case["cache"].items()}
    kept = dict(cache)
    answer(cache, case["moves"])
    after = {name: tensor.clone() for name, tensor in cache.items()}
    for tensor in cache.values():
        for _, target in case["moves"][:1]:
            tensor[target] = 7
    moved = [name for name in kept if cache.get(name) is not kept[name]]
    return {"after": after, "written": dict(cache), "replaced": moved}


def copied(case: Case) -> dict[str, Numbers]:
    """The cache after the copy."""
    after = {name: np.array(tensor.numpy()) for name, tensor in case["cache"].items()}
    for tensor in after.values():
        before = tensor.copy()
        for source, target in case["moves"]:
            tensor[target] = before[source]
    return after


def judge_copy(case: Case, got: Any) -> None:
    """What is in every block after a copy.

    Raises:
        CheckFailed: saying what was left behind.
    """
    if not isinstance(got, dict) or not isinstance(got.get("after"), dict):
        raise CheckFailed("the evidence is not what was kept")
    wanted, after = copied(case), got["after"]
    if set(after) != set(wanted):
        raise CheckFailed("the cache has lost or gained tensors", expected=[*wanted], got=[*after])
    if got.get("replaced"):
        raise CheckFailed(
            f"{got['replaced'][0]} is another tensor now: the engine holds the old one. Write into "
            "the tensors that are there"
        )
    wrong = [name for name in wanted if not same(wanted[name], after[name])]
    if wrong:
        raise CheckFailed(_left_behind(case, wanted, after, wrong), expected="k, v and both scales")
    written = got.get("written", {})
    for source, _ in case["moves"][:1]:
        for name in wanted:
            if not same(wanted[name][source], written[name][source]):
                raise CheckFailed(
                    f"{name}: when the copy is written to, the original changes as well. They must "
                    "not be the same memory"
                )


def same(one: Any, other: Any) -> bool:
    """Whether evidence is this array, to the last number."""
    return isinstance(other, np.ndarray) and one.shape == other.shape and bool((one == other).all())


def _left_behind(
    case: Case, wanted: dict[str, Numbers], after: dict[str, Numbers], wrong: list[str]
) -> str:
    source, target = case["moves"][0] if case["moves"] else (0, 0)
    untouched = [name for name in wrong if same(_before(case, name), after[name])]
    if len(untouched) == len(wanted):
        return f"nothing was copied: block {target} is what it was"
    if untouched and all(name.endswith("_scale") for name in untouched):
        worth = (_before(case, untouched[0])[target] / _before(case, untouched[0])[source]).mean()
        return (
            f"the codes of block {source} were copied to {target}, and its scales stayed behind: "
            f"read with the scales of whoever had block {target} before, its numbers are "
            f"{worth:.2g} times as large. Scales travel with their block"
        )
    if untouched:
        return (
            f"{' and '.join(untouched)}: not copied. Keys, values and the scales of both belong to "
            "a block"
        )
    if all(same(_before(case, name)[target], after[name][source]) for name in wrong):
        return f"block {source} was overwritten by block {target}: moves are pairs (from, to)"
    return f"{wrong[0]}: another block holds something else than before, or than its original"


def _before(case: Case, name: str) -> Numbers:
    tensor: Tensor = case["cache"][name]
    return np.asarray(tensor.numpy())
