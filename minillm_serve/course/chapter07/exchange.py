"""One engine, whose drafter is exchanged: so the weights are loaded once for all comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minillm_serve import LLM
from minillm_serve.core import DraftLengths, FixedLengths, Speculation
from minillm_serve.models.draft_head import DraftHead, find_draft_head, load_draft_head
from minillm_serve.runtime.forward import Forward
from minillm_serve.runtime.spec.drafter import Drafter
from minillm_serve.runtime.spec.early_exit import EarlyExitDrafter
from minillm_serve.runtime.spec.ngram import NgramDrafter
from minillm_serve.runtime.torch_executor import TorchExecutor


@contextmanager
def drafting(
    llm: LLM, drafter: Drafter | None, lengths: int | DraftLengths = 1
) -> Iterator[Speculation | None]:
    """Has somebody else make drafts for a while, or nobody.

    Args:
        llm: idle, built with a `speculative_config`.
        drafter: without a KV cache, or the engine's own; None decodes plainly.
        lengths: drafts of each step (k), or who says how many.

    Yields:
        What counts the drafts, as `LLM.spec_stats` does.
    """
    executor, scheduler = executor_of(llm), llm.engine.scheduler
    before = executor.drafter, scheduler.speculation
    counted = None
    if drafter is not None:
        counted = Speculation(FixedLengths(lengths) if isinstance(lengths, int) else lengths)
    executor.drafter, scheduler.speculation = drafter, counted
    try:
        yield counted
    finally:
        executor.drafter, scheduler.speculation = before


def executor_of(llm: LLM) -> TorchExecutor:
    """What runs an engine's steps."""
    executor = llm.engine.executor
    assert isinstance(executor, TorchExecutor)
    return executor


def early_exit(llm: LLM, num_layers: int) -> EarlyExitDrafter:
    """The model itself, left after so many layers."""
    executor = executor_of(llm)
    forward = Forward(executor.model, executor.kv_cache, executor.backend)
    return EarlyExitDrafter(forward, num_layers)


def trained_head(llm: LLM) -> DraftHead:
    """The head that comes with an engine's model, to be looked at."""
    file = find_draft_head(llm.model_path)
    if file is None:
        raise ValueError(f"no draft head comes with {llm.model_path.name}")
    return load_draft_head(file, executor_of(llm).model)


def drafters(llm: LLM) -> dict[str, Drafter]:
    """The chapter's three: name -> who.

    Args:
        llm: built with the method "eagle".
    """
    head = executor_of(llm).drafter
    assert head is not None
    half = llm.model_config.num_layers // 2
    return {"n-gram": NgramDrafter(), "early exit": early_exit(llm, half), "trained head": head}
