"""What changes logits before anything is chosen: bias, minimum length, penalties."""

import math
from collections.abc import Sequence as Rows

import numpy as np
import torch
from torch import Tensor

from minillm_serve.runtime.device import upload, upload_one
from minillm_serve.runtime.sampling.choice import Choice


def adjust(logits: Tensor, choices: Rows[Choice], last: Tensor) -> Tensor:
    """Applies what each row's request asks for; logits [R, V] stay as they are.

    Args:
        logits: [R, V].
        choices: [R].
        last: [R] int64, the token before each choice; it need not be known to the host.

    Returns:
        The same tensor if nobody asks for anything, else a float32 copy (float64 stays).
    """
    if not any(choice.adjusts for choice in choices):
        return logits
    logits = (
        logits.clone() if logits.dtype is torch.float64 else logits.to(torch.float32, copy=True)
    )
    for row, choice in enumerate(choices):
        if choice.adjusts:
            _adjust_row(logits[row], choice, last[row : row + 1])
    return logits


def _adjust_row(row: Tensor, choice: Choice, last: Tensor) -> None:
    bias = choice.params.logit_bias
    if bias:
        ids, values = upload([np.array([*bias]), np.array([*bias.values()])], row.device)
        row.index_add_(0, ids, values.to(row.dtype))
    if choice.params.penalizes:
        _penalize(row, choice, last)
    if choice.is_too_short:
        row.index_fill_(0, upload_one(sorted(choice.stop_ids), np.int64, row.device), -math.inf)


def _penalize(row: Tensor, choice: Choice, last: Tensor) -> None:
    params = choice.params
    prompt, output = upload(
        [np.array(choice.prompt_ids, np.int64), np.array(choice.output_ids, np.int64)], row.device
    )
    if choice.has_pending:
        output = torch.cat([output, last])
    if params.repetition_penalty != 1:
        seen = torch.zeros_like(row, dtype=torch.bool)
        seen.index_fill_(0, prompt, True).index_fill_(0, output, True)
        penalty = params.repetition_penalty
        scaled = torch.where(row > 0, row / penalty, row * penalty)
        row.copy_(torch.where(seen, scaled, row))
    if params.frequency_penalty or params.presence_penalty:
        ones = torch.ones_like(output, dtype=row.dtype)
        counts = torch.zeros_like(row).index_add_(0, output, ones)
        row -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
