"""What the logits of a step say to each of its sequences."""

from dataclasses import replace

from torch import Tensor

from minillm_serve.core.batch import Batch, SequenceOutput
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.sampling.logprobs import token_logprobs
from minillm_serve.runtime.sampling.sampler import sample


def read_logits(logits: Tensor, batch: Batch, inputs: StepInputs) -> tuple[SequenceOutput, ...]:
    """Samples where a sequence's end was reached, and reports log probabilities where wanted.

    Args:
        logits: [R, V], of `inputs.logit_rows`.
        batch: what ran.
        inputs: what it was turned into.

    Returns:
        One output for each entry of `batch.scheduled`.
    """
    outputs = [SequenceOutput()] * len(batch.scheduled)
    sequences = [batch.scheduled[index].sequence for index in inputs.sampled]
    if sequences:
        sampled = sample(logits[: len(sequences)], sequences)
        for index, output in zip(inputs.sampled, sampled, strict=True):
            outputs[index] = output
        _add_logprobs(logits, batch, inputs, outputs)
    row = len(sequences)
    for stretch in inputs.prompts:
        count = batch.scheduled[stretch.item].sequence.params.prompt_logprobs or 0
        rows = logits[row : row + len(stretch.token_ids)]
        entries = token_logprobs(rows, stretch.token_ids, [count] * len(rows))
        outputs[stretch.item] = replace(outputs[stretch.item], prompt_logprobs=tuple(entries))
        row += len(rows)
    return tuple(outputs)


def _add_logprobs(
    logits: Tensor, batch: Batch, inputs: StepInputs, outputs: list[SequenceOutput]
) -> None:
    rows, tokens, counts = [], [], []
    for row, index in enumerate(inputs.sampled):
        count = batch.scheduled[index].sequence.params.logprobs
        if count is not None and outputs[index].token_ids:
            rows.append(row)
            tokens.append(outputs[index].token_ids[0])
            counts.append(count)
    for row, entry in zip(rows, token_logprobs(logits[rows], tokens, counts), strict=True):
        index = inputs.sampled[row]
        outputs[index] = replace(outputs[index], logprobs=(entry,))
