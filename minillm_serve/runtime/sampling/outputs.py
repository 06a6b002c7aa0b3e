"""What the logits of a step say to each of its sequences."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from minillm_serve.core.batch import SequenceOutput
from minillm_serve.runtime.device import upload_one
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.sampling.logprobs import LogprobTensors, token_logprobs
from minillm_serve.runtime.sampling.sampler import FAULTS, choose


@dataclass(frozen=True, slots=True)
class Reading:
    """All that the host will want to know of a step's logits.

    Attributes:
        inputs: of the step.
        tokens: [S] int64, what was sampled, where the step ran.
        reported: [S] int64, the same for the host, or a key of `FAULTS`.
        sampled: log probabilities of those of `inputs.logprob_rows`.
        prompts: log probabilities of `inputs.prompts`, one entry each.
    """

    inputs: StepInputs
    tokens: Tensor
    reported: Tensor
    sampled: LogprobTensors | None
    prompts: list[LogprobTensors]

    def to_host(self) -> "Reading":
        """The same with everything that `outputs` needs on the host, as soon as it has arrived."""
        return replace(
            self,
            reported=self.reported.to("cpu", non_blocking=True),
            sampled=self.sampled.to_host() if self.sampled else None,
            prompts=[entry.to_host() for entry in self.prompts],
        )

    def outputs(self) -> tuple[SequenceOutput, ...]:
        """One output for each entry of `Batch.scheduled`."""
        inputs = self.inputs
        outputs = [SequenceOutput()] * inputs.num_scheduled
        for index, token in zip(inputs.sampled, self.reported.tolist(), strict=True):
            fault = FAULTS.get(token)
            outputs[index] = SequenceOutput(() if fault else (token,), error=fault)
        if self.sampled is not None:
            counts = [inputs.choices[row].params.logprobs or 0 for row in inputs.logprob_rows]
            entries = self.sampled.entries(counts)
            for row, entry in zip(inputs.logprob_rows, entries, strict=True):
                index = inputs.sampled[row]
                if outputs[index].error is None:
                    outputs[index] = replace(outputs[index], logprobs=(entry,))
        for stretch, tensors in zip(inputs.prompts, self.prompts, strict=True):
            told = tensors.entries([stretch.num_logprobs] * len(stretch.token_ids))
            outputs[stretch.item] = replace(outputs[stretch.item], prompt_logprobs=tuple(told))
        return tuple(outputs)


def read_logits(logits: Tensor, inputs: StepInputs, last: Tensor) -> Reading:
    """Samples where a sequence's end was reached, and finds log probabilities where wanted.

    Args:
        logits: [R, V], of `inputs.logit_rows`.
        inputs: of the step.
        last: [S] int64, the token that stands in each sampled row.
    """
    count = len(inputs.sampled)
    tokens, reported = choose(logits[:count], inputs.choices, last)
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
    return Reading(inputs, tokens, reported, sampled, prompts)
