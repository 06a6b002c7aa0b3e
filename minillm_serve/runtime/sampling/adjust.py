"""What changes logits before anything is chosen: bias, minimum length, penalties."""

import math
from collections.abc import Sequence as Rows

import torch
from torch import Tensor

from minillm_serve.core.request import Sequence


def adjust(logits: Tensor, sequences: Rows[Sequence]) -> Tensor:
    """Applies what each row's request asks for; logits [R, V] stay as they are.

    Returns:
        The same tensor if nobody asks for anything, else a float32 copy (float64 stays).
    """
    if not any(_adjusts(sequence) for sequence in sequences):
        return logits
    logits = (
        logits.clone() if logits.dtype is torch.float64 else logits.to(torch.float32, copy=True)
    )
    for row, sequence in enumerate(sequences):
        if _adjusts(sequence):
            _adjust_row(logits[row], sequence)
    return logits


def _adjusts(sequence: Sequence) -> bool:
    params = sequence.params
    return bool(params.logit_bias) or params.penalizes or _is_too_short(sequence)


def _is_too_short(sequence: Sequence) -> bool:
    return sequence.num_output_tokens < sequence.params.min_tokens and bool(sequence.stop_ids)


def _adjust_row(row: Tensor, sequence: Sequence) -> None:
    params = sequence.params
    if params.logit_bias:
        ids = torch.tensor(list(params.logit_bias), device=row.device)
        row[ids] += torch.tensor(list(params.logit_bias.values()), dtype=row.dtype).to(row.device)
    if params.penalizes:
        _penalize(row, sequence)
    if _is_too_short(sequence):
        row[torch.tensor(sorted(sequence.stop_ids), device=row.device)] = -math.inf


def _penalize(row: Tensor, sequence: Sequence) -> None:
    params = sequence.params
    if params.repetition_penalty != 1:
        seen = torch.tensor(sequence.token_ids, device=row.device).unique()
        value = row[seen]
        penalty = params.repetition_penalty
        row[seen] = torch.where(value > 0, value / penalty, value * penalty)
    if params.frequency_penalty or params.presence_penalty:
        output = torch.tensor(sequence.output_token_ids, dtype=torch.int64, device=row.device)
        used, counts = output.unique(return_counts=True)
        row[used] -= params.frequency_penalty * counts.to(row.dtype) + params.presence_penalty
