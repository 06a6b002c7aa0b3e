"""What the logits of a step say to each of its sequences."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from minillm_serve.core.batch import SequenceOutput
from minillm_serve.core.logprobs import TokenLogprobs
from minillm_serve.runtime.device import upload_one
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.sampling.logprobs import LogprobTensors, token_logprobs
from minillm_serve.runtime.sampling.sampler import FAULTS
from minillm_serve.runtime.spec.verify import PAPERS_RULE, Rule, num_agreed, verify

NOTHING_DRAWN: Mapping[int, Tensor] = {}
NO_FAULTS: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class Reading:
    """All that the host will want to know of a step's logits.

    Attributes:
        inputs: of the step.
        tokens: [C] int64, what each choice gave, where the step ran.
        reported: [C] int64, the same for the host, or a key of `FAULTS`.
        counts: [S'] int64, drafts that stay, of those of `inputs.sampled` that
        ruled: lists: the rule of acceptance decided on them.
        sampled: log probabilities of those of `inputs.logprob_rows`.
        prompts: log probabilities of `inputs.prompts`, one entry each.
        faults: by choice, keys of `FAULTS` that were known before anything was chosen.
    """

    inputs: StepInputs
    tokens: Tensor
    reported: Tensor
    counts: Tensor
    ruled: list[int]
    sampled: LogprobTensors | None
    prompts: list[LogprobTensors]
    faults: Mapping[int, int] = field(default_factory=dict)

    def to_host(self) -> "Reading":
        """The same with everything that `outputs` needs on the host, as soon as it has arrived."""
        return replace(
            self,
            reported=self.reported.to("cpu", non_blocking=True),
            counts=self.counts.to("cpu", non_blocking=True),
            sampled=self.sampled.to_host() if self.sampled else None,
            prompts=[entry.to_host() for entry in self.prompts],
        )

    def outputs(self) -> tuple[SequenceOutput, ...]:
        """One output for each entry of `Batch.scheduled`."""
        inputs = self.inputs
        outputs = [SequenceOutput()] * inputs.num_scheduled
        reported, logprobs = self.reported.tolist(), self._logprobs()
        for row, fault in self.faults.items():
            reported[row] = fault
        counts = dict(zip(self.ruled, self.counts.tolist(), strict=True))
        for s, (index, drafts) in enumerate(zip(inputs.sampled, inputs.drafts, strict=True)):
            first = inputs.first_choices[s]
            chosen = reported[first : first + 1 + len(drafts)]
            accepted = counts[s] if s in counts else num_agreed(drafts, chosen)
            kept = tuple(chosen[: accepted + 1])
            why = next((FAULTS[token] for token in kept if token in FAULTS), None)
            told = [logprobs[row] for row in range(first, first + len(kept)) if row in logprobs]
            outputs[index] = SequenceOutput(
                token_ids=() if why else kept,
                logprobs=() if why else tuple(told),
                draft_token_ids=drafts,
                error=why,
            )
        for stretch, tensors in zip(inputs.prompts, self.prompts, strict=True):
            told = tensors.entries([stretch.num_logprobs] * len(stretch.token_ids))
            outputs[stretch.item] = replace(outputs[stretch.item], prompt_logprobs=tuple(told))
        return tuple(outputs)

    def _logprobs(self) -> dict[int, TokenLogprobs]:
        """Entries by choice, also of choices that come to nothing."""
        if self.sampled is None:
            return {}
        rows, choices = self.inputs.logprob_rows, self.inputs.choices
        entries = self.sampled.entries([choices[row].params.logprobs or 0 for row in rows])
        return dict(zip(rows, entries, strict=True))


def read_logits(
    logits: Tensor,
    inputs: StepInputs,
    last: Tensor,
    drawn: Mapping[int, Tensor] = NOTHING_DRAWN,
    rule: Rule = PAPERS_RULE,
    faults: Mapping[int, int] = NO_FAULTS,
) -> Reading:
    """Samples where a sequence's end was reached, and finds log probabilities where wanted.

    Args:
        logits: [R, V], of `inputs.logit_rows`.
        inputs: of the step.
        last: [C] int64, the token before each choice.
        drawn: see `verify`.
        rule: see `verify`.
        faults: see `Reading`.
    """
    count = len(inputs.choices)
    (tokens, reported), counts, ruled = verify(logits[:count], inputs, last, drawn, rule)
    sampled = None
    if inputs.logprob_rows:
        rows = upload_one(inputs.logprob_rows, np.int64, logits.device)
        most = max(inputs.choices[row].params.logprobs or 0 for row in inputs.logprob_rows)
        sampled = token_logprobs(logits[rows], tokens[rows], most)
    prompts, begin = [], count
    for stretch in inputs.prompts:
        ids = upload_one(stretch.token_ids, np.int64, logits.device)
        rows = logits[begin : begin + len(ids)]
        prompts.append(token_logprobs(rows, ids, stretch.num_logprobs))
        begin += len(ids)
    return Reading(inputs, tokens, reported, counts, ruled, sampled, prompts, faults)
