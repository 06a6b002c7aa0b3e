"""The `accept` slot."""

from typing import Any

import torch
from torch import Tensor

from minillm_serve.parts.part import Part
from minillm_serve.runtime.spec.accept import PADDING, Accepted, AcceptRule
from minillm_serve.runtime.spec.conformance import find_wrong_shares, find_wrong_tokens


def fit_accept(part: Part | None, ours: AcceptRule) -> AcceptRule:
    """Somebody's acceptance rule, whose answers are checked; ours if there is none.

    Raises:
        PartError: it is no function with the protocol's parameters, or accepts wrongly.
    """
    if part is None:
        return ours
    named = name_faults(part)

    def checked(p: Tensor, q: Tensor, drafts: Tensor, lengths: Tensor, draws: Tensor) -> Accepted:
        accepted = named(p, q, drafts, lengths, draws)
        _check_tokens(part, accepted, p, drafts, lengths)
        return accepted

    with torch.inference_mode():
        fault = find_wrong_tokens(named) or find_wrong_shares(checked)
    part.expect(fault is None, f"is wrong: it {fault}")
    return checked


def name_faults(part: Part) -> AcceptRule:
    """The same rule; what it raises, or returns in another form, is named as its own.

    Raises:
        PartError: it is no function with the protocol's parameters.
    """
    part.expect(callable(part.value), f"is of type {type(part.value).__name__}: give a function")
    part.check_signature(part.value, AcceptRule.__call__, part.slot)

    def named(p: Tensor, q: Tensor, drafts: Tensor, lengths: Tensor, draws: Tensor) -> Accepted:
        with part.blame():
            answer = part.value(p, q, drafts, lengths, draws)
        return _read(part, answer, drafts)

    return named


def _read(part: Part, answer: Any, drafts: Tensor) -> Accepted:
    """What a rule returned, if its form is right: a pair of tensors with the right shapes."""
    is_pair = isinstance(answer, tuple) and len(answer) == 2
    if not is_pair or not all(isinstance(one, Tensor) for one in answer):
        raise part.error(
            f"returned a {type(answer).__name__}, expected Accepted(token_ids, counts), two tensors"
        )
    accepted = Accepted(*answer)
    size, num_drafts = drafts.shape
    for name, want in {"token_ids": [size, num_drafts + 1], "counts": [size]}.items():
        got = getattr(accepted, name)
        part.expect(
            list(got.shape) == want and got.dtype == torch.int64,
            f"returned {name} of shape {list(got.shape)} and {got.dtype}, expected {want} and "
            "torch.int64",
        )
    return accepted


def _check_tokens(
    part: Part, accepted: Accepted, p: Tensor, drafts: Tensor, lengths: Tensor
) -> None:
    """Whatever a rule decides, the engine must be able to go on with it."""
    token_ids, counts = accepted
    vocab, place = p.shape[2], torch.arange(p.shape[1], device=p.device)
    kept, last = place < counts[:, None], place == counts[:, None]
    no_token = (token_ids < 0) | (token_ids >= vocab)
    probability = p.gather(2, token_ids.clamp(0, vocab - 1).unsqueeze(2)).squeeze(2)
    padded_drafts = torch.nn.functional.pad(drafts, (0, 1))
    out_of_range = ((counts < 0) | (counts > lengths))[:, None] & (place == 0)
    for wrong, what in (
        (out_of_range, "the count must be from 0 to {length}, how many drafts it has"),
        (kept & (token_ids != padded_drafts), "token {place} is kept, and the draft is {draft}"),
        (last & no_token, "token {place} must be an id from 0 to {most}"),
        # Not `<= 0`: it is no rule's fault if a model's numbers are none.
        ((kept | last) & (probability == 0), "token {place} has the probability 0 by p"),
        (~kept & ~last & (token_ids != PADDING), "behind the last token there must be {padding}"),
    ):
        if wrong.any():
            s, i = wrong.nonzero()[0].tolist()
            said = what.format(
                place=i,
                length=lengths[s].item(),
                draft=padded_drafts[s, i].item(),
                most=vocab - 1,
                padding=PADDING,
            )
            raise part.error(
                f"returned the tokens {token_ids[s].tolist()} and the count {counts[s].item()} for "
                f"sequence {s}, but {said}"
            )
