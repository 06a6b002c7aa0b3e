"""The acceptance rule of speculative decoding: which drafts stay, and which token follows them.

Leviathan, Kalman and Matias 2023 (arXiv:2211.17192, Algorithm 1) and Chen et al. 2023
(arXiv:2302.01318). A drafter drew token d from its own distribution q; the model, which would have
drawn from p, keeps it with probability min(1, p(d) / q(d)). At the first draft that is not kept,
the token comes from what p has more than q, max(0, p - q), made to sum to 1.

So x is drafted and kept with probability q(x) min(1, p(x) / q(x)) = min(p(x), q(x)). What these
lack of 1 is the sum of max(0, p - q), since p sums to 1. Hence x comes out with probability

    min(p(x), q(x)) + max(0, p(x) - q(x)) = p(x)

whatever q is: a bad drafter costs time, never quality. If all drafts are kept, one more token comes
from the p that follows the last, for nothing: the model has computed it already.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from minillm_serve.runtime.device import has_triton
from minillm_serve.runtime.sampling.inversion import invert

#: What stands behind a row's last token.
PADDING = -1


class Accepted(NamedTuple):
    """What became of a step's drafts.

    Attributes:
        token_ids: [S, K+1] int64: each sequence's new tokens, then `PADDING`. They are the drafts
            that were kept and one token more.
        counts: [S] int64, how many drafts were kept: 0..K.
    """

    token_ids: Tensor
    counts: Tensor


class AcceptRule(Protocol):
    """Decides which drafts stay and which token follows them, so that tokens are distributed as p.

    `accept` is ours.
    """

    def __call__(
        self, p: Tensor, q: Tensor, drafts: Tensor, lengths: Tensor, draws: Tensor
    ) -> Accepted:
        """Tests the drafts of S sequences, each of which has up to K.

        Args:
            p: [S, K+1, V] float32; p[s, i] is the model's distribution of the token after i drafts,
                as it is sampled from: after temperature and filters, summing to 1. A greedy
                request's is 1 for one token and 0 for all others.
            q: [S, K, V] float32; q[s, i] is the distribution that draft i was drawn from.
            drafts: [S, K] int64.
            lengths: [S] int64, how many drafts each sequence has: 0..K. All that is beyond a
                sequence's drafts (of p, beyond the row after the last) must not matter: it may be
                NaN, or no token's id.
            draws: [S, K+1, 2] float64, uniform in [0, 1): draft i is kept if draws[s, i, 0] is
                below p / q; a token after i drafts is picked by draws[s, i, 1].

        Returns:
            The drafts that are kept and one token more.
        """
        ...


def accept(p: Tensor, q: Tensor, drafts: Tensor, lengths: Tensor, draws: Tensor) -> Accepted:
    """Tests drafts as the papers do; see `AcceptRule` for the arguments.

    Greedy requests need no case of their own: where p is 1 for one token and 0 for the others, a
    draft is kept if it is this token, and otherwise only this token is left to be picked.

    Raises:
        ValueError: shapes or dtypes do not fit.
    """
    _check(p, q, drafts, lengths, draws)
    num_drafts = drafts.shape[1]
    drafted = torch.arange(num_drafts, device=p.device) < lengths[:, None]
    looked_up = drafts.where(drafted, 0).unsqueeze(2)
    p_draft = p[:, :num_drafts].gather(2, looked_up).squeeze(2)
    q_draft = q.gather(2, looked_up).squeeze(2)
    # The test draw < p / q, without a division by zero. q = 0 means that the draft could not have
    # been drawn, so it happens by rounding alone; then a draft passes if the model may say it too.
    kept = drafted & (draws[:, :num_drafts, 0] * q_draft < p_draft)
    counts = kept.long().cumprod(dim=1).sum(dim=1)

    rows = torch.arange(len(p), device=p.device)
    weights = p[rows, counts]
    refused = (counts < lengths).nonzero().squeeze(1)
    rest = (weights[refused] - q[refused, counts[refused]]).clamp(min=0)
    # p and q sum to 1, so that p cannot be below q everywhere, except by rounding, when they are
    # equal. Then p says what is left as well as anything.
    weights[refused] = rest.where(rest.sum(dim=1, keepdim=True) > 0, weights[refused])
    return _followed_by(drafts, counts, invert(weights, draws[rows, counts, 1]))


def accept_on(device: torch.device) -> AcceptRule:
    """Ours on a device: a Triton kernel on a GPU, which reads less, and `accept` elsewhere."""
    if device.type != "cuda" or not has_triton():
        return accept
    from minillm_serve.kernels.accept import accept as accept_by_kernel

    def accept_on_gpu(
        p: Tensor, q: Tensor, drafts: Tensor, lengths: Tensor, draws: Tensor
    ) -> Accepted:
        return Accepted(*accept_by_kernel(p, q, drafts, lengths, draws))

    return accept_on_gpu


def match(chosen: Tensor, drafts: Tensor, lengths: Tensor) -> Accepted:
    """The rule for drafts that are certain, which needs no distributions: a draft stays if chosen.

    The model chooses a token at every row as it always does, each by its own seed and position.
    Drafts are kept as long as they are what was chosen, and the first choice that differs is the
    token that follows. So every token is the one that would have been chosen without any drafts.

    A certain draft d is one whose q is 1 at d and 0 elsewhere. Then `accept` keeps d with
    probability p(d) and otherwise picks from p without d: the same distribution as here. If p is
    certain, too (greedy), both give the same tokens, whatever q and the draws.

    Args:
        chosen: [S, K+1] int64; chosen[s, i] is the choice after i drafts.
        drafts: [S, K] int64.
        lengths: [S] int64, 0..K.

    Returns:
        The drafts that are kept and one token more.
    """
    num_drafts = drafts.shape[1]
    drafted = torch.arange(num_drafts, device=drafts.device) < lengths[:, None]
    kept = drafted & (drafts == chosen[:, :num_drafts])
    counts = kept.long().cumprod(dim=1).sum(dim=1)
    return _followed_by(drafts, counts, chosen.gather(1, counts[:, None]).squeeze(1))


def _followed_by(drafts: Tensor, counts: Tensor, tokens: Tensor) -> Accepted:
    """The first `counts` [S] drafts [S, K], one token [S] more, and padding."""
    place = torch.arange(drafts.shape[1] + 1, device=drafts.device)
    padded = torch.nn.functional.pad(drafts, (0, 1))
    token_ids = padded.where(place < counts[:, None], PADDING)
    return Accepted(token_ids.where(place != counts[:, None], tokens[:, None]), counts)


def _check(p: Tensor, q: Tensor, drafts: Tensor, lengths: Tensor, draws: Tensor) -> None:
    """Raises ValueError unless shapes and dtypes fit; looks at no number."""
    if p.ndim != 3 or p.shape[1] < 1 or p.shape[2] < 1:
        raise ValueError(f"p has shape {list(p.shape)}, must be [S, K+1, V]")
    size, rows, vocab = p.shape
    expected = {
        "p": (p, [size, rows, vocab], torch.float32),
        "q": (q, [size, rows - 1, vocab], torch.float32),
        "drafts": (drafts, [size, rows - 1], torch.int64),
        "lengths": (lengths, [size], torch.int64),
        "draws": (draws, [size, rows, 2], torch.float64),
    }
    for name, (tensor, shape, dtype) in expected.items():
        if list(tensor.shape) != shape or tensor.dtype != dtype:
            raise ValueError(
                f"{name} has shape {list(tensor.shape)} and {tensor.dtype}, must have {shape} and "
                f"{dtype}, by p's shape {list(p.shape)}"
            )
