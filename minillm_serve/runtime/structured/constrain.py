"""Keeps the tokens of a step to what grammars allow."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from minillm_serve.runtime.device import upload
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.structured.grammar import pack_ids

Mask = np.ndarray | int | None


class Constrained(NamedTuple):
    """A step's logits and choices, as the grammars leave them.

    Attributes:
        logits: [R, V]; of what may not come, -inf.
        inputs: the step's; choices where nothing but an end may come know it.
        faults: rows where nothing can be chosen, and why: a key of `sampler.FAULTS`.
    """

    logits: Tensor
    inputs: StepInputs
    faults: Mapping[int, int]


def constrain(logits: Tensor, inputs: StepInputs, masks: list[Mask]) -> Constrained:
    """Applies masks before anything else that samples.

    Args:
        logits: [R, V], of `inputs.logit_rows`.
        inputs: of the step.
        masks: of `inputs.guided`; see `Matchers.masks`.
    """
    found = [(item.row, mask) for item, mask in zip(inputs.guided, masks, strict=True)]
    faults = {row: mask for row, mask in found if isinstance(mask, int)}
    bits = {row: mask for row, mask in found if isinstance(mask, np.ndarray)}
    if bits:
        logits = _masked(logits, bits)
    choices = [
        replace(choice, must_end=True)
        if row in bits and choice.is_too_short and _only_ends(bits[row], choice.stop_ids, logits)
        else choice
        for row, choice in enumerate(inputs.choices)
    ]
    return Constrained(logits, replace(inputs, choices=choices), faults)


def _masked(logits: Tensor, bits: Mapping[int, np.ndarray]) -> Tensor:
    rows, packed = upload([np.array([*bits], np.int64), np.stack([*bits.values()])], logits.device)
    places = torch.arange(32, device=logits.device, dtype=torch.int32)
    allowed = ((packed.unsqueeze(2) >> places) & 1).bool().flatten(1)[:, : logits.shape[1]]
    logits = logits.clone()
    logits[rows] = logits[rows].masked_fill(~allowed, -math.inf)
    return logits


def _only_ends(bits: np.ndarray, stop_ids: frozenset[int], logits: Tensor) -> bool:
    return not (bits & ~pack_ids(stop_ids, logits.shape[1])).any()
