"""Asks drafters at every token of an answer, so that any way of using their drafts can be replayed.

What a drafter guesses hangs on the tokens so far, not on how they came about: whether one by one or
several in a step. So drafters are asked at *every* token while an engine decodes plainly, and their
guesses are noted down instead of used. The first k drafts of many are those that one gets if one
asks for k. `replay` makes of it the steps of an engine that uses them, for any k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from minillm_serve import LLM, SamplingParams
from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.course.chapter07.exchange import drafting
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.drafter import Drafter, Proposal


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and what was guessed of it.

    Attributes:
        prompt: token ids.
        token_ids: of the answer, greedy.
        guesses: drafter -> entry i: its drafts when the answer had i tokens. Nobody is asked when
            it has none, or all but one: entries 0 and the last are empty.
    """

    prompt: list[int]
    token_ids: list[int]
    guesses: Mapping[str, list[tuple[int, ...]]]


class Panel:
    """Several drafters that are asked together, and not listened to.

    Args:
        drafters: name -> who, and for how many drafts. One of them may have a KV cache.

    Attributes:
        heard: name -> request and tokens of its sequence -> drafts.
    """

    def __init__(self, drafters: Mapping[str, tuple[Drafter, int]]) -> None:
        self._drafters = dict(drafters)
        caches = [d.kv_cache for d, _ in drafters.values() if d.kv_cache is not None]
        self.kv_cache: KVCache | None = caches[0] if caches else None
        self.heard: dict[str, dict[tuple[str, int], tuple[int, ...]]] = {n: {} for n in drafters}

    def propose(self, items: list[ScheduledSequence]) -> Proposal:
        """Asks everybody, and proposes nothing."""
        for name, (drafter, most) in self._drafters.items():
            asked = [item.with_room(min(most, item.num_drafts)) for item in items]
            for item, drafts in zip(items, drafter.propose(asked).token_ids, strict=True):
                place = item.sequence.request.request_id, len(item.sequence)
                self.heard[name][place] = tuple(drafts)
        return Proposal([[] for _ in items])

    def observe(self, batch: Batch, inputs: StepInputs, hidden: Tensor) -> None:
        """Lets everybody look."""
        for drafter, _ in self._drafters.values():
            drafter.observe(batch, inputs, hidden)


def watch(
    llm: LLM,
    prompts: Sequence[Sequence[int]],
    drafters: Mapping[str, tuple[Drafter, int]],
    max_tokens: int,
) -> list[Answer]:
    """Answers prompts greedily, side by side, and asks drafters at every token.

    Args:
        llm: idle, built with a `speculative_config`.
        prompts: token ids.
        drafters: as of `Panel`.
        max_tokens: of each answer, which ends earlier if the model ends it.
    """
    panel = Panel(drafters)
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    with drafting(llm, panel, max(most for _, most in drafters.values())):
        outputs = llm.generate([list(p) for p in prompts], params, use_tqdm=False)
    answers = []
    for output in outputs:
        prompt, ids = list(output.prompt_token_ids), list(output.outputs[0].token_ids)
        guesses = {
            name: [heard.get((output.request_id, len(prompt) + i), ()) for i in range(len(ids))]
            for name, heard in panel.heard.items()
        }
        answers.append(Answer(prompt, ids, guesses))
    return answers
