"""Steps of drafts that are exact in any arithmetic, for tests of whatever accepts them."""

import math

import torch
from hypothesis import strategies as st

sixteenths = st.integers(0, 16)


@st.composite
def steps(draw):
    """Steps of dyadic numbers, so that sums are exact and draws fall on borders."""
    size, num_drafts, vocab = (
        draw(st.integers(1, 4)),
        draw(st.integers(0, 3)),
        draw(st.integers(1, 5)),
    )

    def distribution():
        """Sixteenths that sum to 1."""
        cuts = sorted(draw(st.lists(sixteenths, min_size=vocab - 1, max_size=vocab - 1)))
        return [(b - a) / 16 for a, b in zip([0, *cuts], [*cuts, 16], strict=True)]

    p = torch.tensor([[distribution() for _ in range(num_drafts + 1)] for _ in range(size)])
    q = torch.tensor([[distribution() for _ in range(num_drafts)] for _ in range(size)])
    q = q.reshape(size, num_drafts, vocab)
    drafts = torch.tensor(
        [[draw(st.integers(0, vocab - 1)) for _ in range(num_drafts)] for _ in range(size)],
        dtype=torch.int64,
    )
    lengths = torch.tensor([draw(st.integers(0, num_drafts)) for _ in range(size)])
    number = st.sampled_from([0.0, 0.125, 0.25, 0.4375, 0.5, 0.75, 0.9375, 1 - 2**-53])
    draws = torch.tensor(
        [[[draw(number), draw(number)] for _ in range(num_drafts + 1)] for _ in range(size)],
        dtype=torch.float64,
    )
    return p, q, drafts, lengths, draws


def spoil(p, q, drafts, lengths):
    """The same with NaN, and ids of nobody, beyond each sequence's drafts."""
    p, q, drafts = p.clone(), q.clone(), drafts.clone()
    for s, count in enumerate(lengths.tolist()):
        p[s, count + 1 :], q[s, count:], drafts[s, count:] = math.nan, math.nan, 99
    return p, q, drafts, lengths
