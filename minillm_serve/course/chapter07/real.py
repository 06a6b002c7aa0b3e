"""What is done with the real model: answers with drafts and without, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from torch import Tensor

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import DraftLengths, Request, SpecStats, StepRecord
from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.course.chapter07.exchange import drafting
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.drafter import Drafter, Proposal


@dataclass(frozen=True, slots=True)
class Run:
    """Answers that were written side by side.

    Attributes:
        token_ids: of each.
        steps: that decoded, all prompts being read.
        tokens: that they gave.
        seconds: that they took.
        stats: drafts, and how many were kept; zeros without a drafter.
    """

    token_ids: list[list[int]]
    steps: int
    tokens: int
    seconds: float
    stats: SpecStats

    @property
    def per_token(self) -> float:
        """Seconds a token."""
        return self.seconds / self.tokens

    @property
    def drafts_each(self) -> float:
        """Drafts of a sequence in a step, on average."""
        taken_part = self.tokens - self.stats.num_accepted_tokens
        return self.stats.num_draft_tokens / taken_part


def run(
    llm: LLM,
    prompts: Sequence[Sequence[int]],
    drafter: Drafter | None = None,
    lengths: int | DraftLengths = 4,
    *,
    params: SamplingParams,
) -> Run:
    """Answers prompts, all at once.

    Args:
        llm: idle, built with a `speculative_config`, and without a prefix cache.
        prompts: token ids.
        drafter: who guesses; None: nobody.
        lengths: how many drafts a step (k), or who says so.
        params: of every prompt.
    """
    records = list[StepRecord]()
    llm.engine.on_step = records.append
    with drafting(llm, drafter, lengths) as speculation:
        outputs = llm.generate([list(p) for p in prompts], params, use_tqdm=False)
    llm.engine.on_step = None
    # Prompts are read in the first steps, which sample at most a token for each.
    reading = sum(len(p) for p in prompts)
    decoding = list[StepRecord]()
    for record in records:
        if reading <= 0:
            decoding.append(record)
        reading -= record.num_tokens
    return Run(
        [list(answer.token_ids) for output in outputs for answer in output.outputs],
        len(decoding),
        sum(record.num_sampled for record in decoding),
        sum(record.ended - record.began for record in decoding),
        speculation.stats if speculation is not None else SpecStats(),
    )


def alpha_of(stats: SpecStats) -> float:
    """The chance that a draft is kept if all before it are, over steps with as many drafts each.

    (`SpecStats.acceptance_rate` counts those behind a wrong one as well.)
    """
    kept = stats.num_accepted_tokens_per_pos
    tried = stats.num_drafts + sum(kept[:-1])
    return sum(kept) / tried if tried else 0.0


def in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that two answers begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@dataclass(frozen=True, slots=True)
class Seen:
    """One step of one sequence, before and after.

    Attributes:
        item: as it was computed, drafts filled in.
        num_blocks: that the sequence had then.
        new_token_ids: what it got.
        num_accepted: how many of these were drafts.
        num_computed: its tokens in the KV cache afterwards.
        num_blocks_after: that it kept.
    """

    item: ScheduledSequence
    num_blocks: int
    new_token_ids: tuple[int, ...]
    num_accepted: int
    num_computed: int
    num_blocks_after: int


class Witness:
    """A drafter that does what the one inside does, and remembers each step.

    Attributes:
        seen: the last step's first sequence, and its blocks.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.kv_cache: KVCache | None = drafter.kv_cache
        self._drafter = drafter
        self.seen: tuple[ScheduledSequence, int] | None = None

    def propose(self, items: list[ScheduledSequence]) -> Proposal:
        """See `Drafter.propose`."""
        return self._drafter.propose(items)

    def observe(self, batch: Batch, inputs: StepInputs, hidden: Tensor) -> None:
        """See `Drafter.observe`."""
        item = batch.scheduled[0]
        self.seen = item, len(item.sequence.block_table)
        self._drafter.observe(batch, inputs, hidden)


def look(
    llm: LLM, prompt: Sequence[int], drafter: Drafter, k: int, *, max_tokens: int
) -> list[Seen]:
    """Answers a prompt greedily, and looks at each step."""
    engine, witness, found = llm.engine, Witness(drafter), list[Seen]()
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    with drafting(llm, witness, k):
        request = Request(request_id="seen", prompt_token_ids=tuple(prompt), params=params)
        engine.add_request(request)
        while engine.has_unfinished:
            (update,) = engine.step()
            assert witness.seen is not None
            (item, blocks), sequence = witness.seen, update.sequence
            new, accepted = update.new_token_ids, update.num_accepted
            after = sequence.num_computed, len(sequence.block_table)
            found.append(Seen(item, blocks, new, accepted, *after))
    return found


def categories(
    one: Sequence[Sequence[int]], other: Sequence[Sequence[int]], least: int = 10
) -> tuple[list[int], list[int], list[tuple[int, ...]]]:
    """Counts of what was said in two runs, what is rare thrown together at the end.

    Args:
        one: answers of the one run.
        other: of the other.
        least: what was said less often, in both runs together, is rare.

    Returns:
        Counts of either run; and what was counted, the rare left out.
    """
    counts = [Counter(map(tuple, answers)) for answers in (one, other)]
    both = counts[0] + counts[1]
    often = [said for said, count in both.most_common() if count >= least]
    rows = []
    for count in counts:
        known = [count[said] for said in often]
        rows.append([*known, count.total() - sum(known)])
    if not rows[0][-1] + rows[1][-1]:
        rows = [row[:-1] for row in rows]
    return rows[0], rows[1], often
