"""The same prompts, answered with drafts and without: who answers, what is asked, what it took."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import (
    AdaptiveLengths,
    FixedLengths,
    SpecStats,
    Speculation,
    StepCosts,
    StepRecord,
)
from minillm_serve.distill.prompts import KINDS, PromptPlan, first_round, second_round
from minillm_serve.models.draft_head import find_draft_head

#: Tokens of the texts that are to be summarized.
ARTICLE_LEN = 120
#: What the contenders are compared with, and the same engine once more.
NONE, AGAIN = "no drafts", "no drafts, again"
#: Blocks of 16 tokens: enough for 32 prompts and answers.
NUM_BLOCKS = 1024


@dataclass(slots=True)
class Contender:
    """An engine, and how many drafts it makes.

    Attributes:
        name: of the row.
        llm: built with a drafter, or without.
        drafts: always so many a step; None leaves it to the engine, 0 is no drafter at all.
        most: drafts a step that the engine may choose.
        costs: by which it does.
    """

    name: str
    llm: LLM
    drafts: int | None = 0
    most: int = 5
    costs: StepCosts | None = None

    def answer(self, prompts: Sequence[list[int]], output_len: int) -> "Run":
        """Answers prompts, all at once, as a server does that has just been started."""
        engine, records = self.llm.engine, list[StepRecord]()
        if self.drafts:
            engine.scheduler.speculation = Speculation(FixedLengths(self.drafts))
        elif self.costs is not None:
            engine.scheduler.speculation = Speculation(AdaptiveLengths(self.most, self.costs))
        params = SamplingParams(temperature=0, max_tokens=output_len)
        engine.on_step = records.append
        self.llm.generate(list(prompts), params, use_tqdm=False)
        engine.on_step = None
        return Run.of(records, sum(map(len, prompts)), engine.spec_stats)


@dataclass(frozen=True, slots=True)
class Run:
    """What answers took once all prompts had been read.

    Attributes:
        tokens: generated.
        steps: that it took.
        seconds: that they took.
        stats: of the drafts.
    """

    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0
    stats: SpecStats = field(default_factory=SpecStats)

    @classmethod
    def of(cls, records: Sequence[StepRecord], num_prompt_tokens: int, stats: SpecStats) -> "Run":
        """Leaves the steps out that read prompts: all contenders read them alike."""
        decoding, left = list[StepRecord](), num_prompt_tokens
        for record in records:
            if left <= 0:
                decoding.append(record)
            left -= record.num_tokens
        tokens = sum(record.num_sampled for record in decoding)
        seconds = sum(record.ended - record.began for record in decoding)
        return cls(tokens, len(decoding), seconds, stats)

    def __add__(self, other: "Run") -> "Run":
        mine, theirs = self.stats, other.stats
        stats = SpecStats(
            mine.num_drafts + theirs.num_drafts,
            mine.num_draft_tokens + theirs.num_draft_tokens,
            mine.num_accepted_tokens + theirs.num_accepted_tokens,
        )
        return Run(
            self.tokens + other.tokens,
            self.steps + other.steps,
            self.seconds + other.seconds,
            stats,
        )


def contenders(model: str, drafters: Sequence[str], drafts: int, most: int) -> list[Contender]:
    """No drafter first; then each drafter, with a fixed number of drafts and as the engine likes.

    Without a drafter everything is measured twice: what those two differ by is noise. Drafters that
    this model has not are left out.
    """
    plain = _engine(model)
    found = [Contender(NONE, plain), Contender(AGAIN, plain)]
    for method in drafters:
        if method in ("eagle", "auto") and find_draft_head(model) is None:
            print(f"no draft head comes with this model: {method} is left out")
            continue
        config = {"method": method, "num_speculative_tokens": most}
        llm = _engine(model, config)
        assert llm.engine.scheduler.speculation is not None
        lengths = llm.engine.scheduler.speculation.lengths
        assert isinstance(lengths, AdaptiveLengths)
        found.append(Contender(f"{method}, {drafts}", llm, drafts))
        found.append(Contender(f"{method}, adaptive", llm, None, most, lengths.costs))
    return found


def held_out_prompts(llm: LLM, count: int, seed: int = 0) -> dict[str, list[list[int]]]:
    """So many prompts of each kind, of those that the trained head has never seen.

    What is to be summarized the model writes first.
    """
    draw = random.Random(seed)
    plan = PromptPlan(articles=-(-count // 2), code=count, retellings=2, questions=count)
    first = first_round(draw, plan, held_out=True)
    asked = [question for question in first if question.article]
    params = [
        SamplingParams(max_tokens=ARTICLE_LEN, temperature=q.temperature, seed=q.seed)
        for q in asked
    ]
    written = llm.generate([_ids(llm, q.text) for q in asked], params, use_tqdm=False)
    articles = [output.outputs[0].text for output in written]
    questions = [q for q in first if not q.article]
    questions += second_round(draw, plan, True, articles)
    return {
        kind: [_ids(llm, q.text) for q in questions if q.kind == kind][:count] for kind in KINDS
    }


def _engine(model: str, config: dict[str, object] | None = None) -> LLM:
    return LLM(
        model,
        dtype="float32",
        prefix_cache=None,
        num_blocks=NUM_BLOCKS,
        speculative_config=config,
    )


def _ids(llm: LLM, text: str) -> list[int]:
    return llm.chat_prompt([{"role": "user", "content": text}])
