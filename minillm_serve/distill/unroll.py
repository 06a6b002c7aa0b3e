"""The head as it is used: fed with the truth once, then with its own features.

A head that has only ever seen the target's outputs goes astray as soon as it reads its own. So it
is unrolled in training exactly as in drafting (EAGLE-3's training-time test, Li et al. 2025,
arXiv:2503.01840), for all points of a text at once. Point r of an answer is where P + r tokens are
known (P: the prompt's). From there

    step 0  reads token P-1+r   with the target's output before it: the first draft
    step j  reads token P-1+r+j with the feature of step j-1:       draft j+1

Step j of point r may look at the keys of step 0 up to token P-1+r, and at those of its own steps
1 .. j. Step j has j points fewer than step 0: the text ends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from minillm_serve.models.draft_head import DraftHead


@dataclass(frozen=True)
class Piece:
    """A text and what the target made of it.

    Attributes:
        token_ids: int64 ``[n]``, prompt and answer.
        hidden: ``[n - 1, hidden]``, the target's output for all tokens but the last, which nobody
            needs; in any dtype.
        num_prompt_tokens: P >= 1.
        kind: of prompt.
        greedy: whether the answer is what the target itself finds likeliest, token by token.
    """

    token_ids: Tensor
    hidden: Tensor
    num_prompt_tokens: int
    kind: str = ""
    greedy: bool = True

    @property
    def num_points(self) -> int:
        """Points from which drafts can start, those with an answer token to come."""
        return len(self.token_ids) - self.num_prompt_tokens


def points(pieces: Sequence[Piece], step: int) -> Tensor:
    """Which of step 0's rows, laid side by side, go on with ``step``'s: int64 ``[R_step]``.

    Row i of ``step`` estimates what row ``points[i]`` of `answer_hidden` holds.
    """
    rows, start = [], 0
    for piece in pieces:
        rows.append(torch.arange(start + min(step, piece.num_points), start + piece.num_points))
        start += piece.num_points
    return torch.cat(rows)


def answer_hidden(pieces: Sequence[Piece], dtype: torch.dtype) -> Tensor:
    """The target's outputs that features estimate: ``[R_0, hidden]``, piece by piece."""
    return torch.cat([piece.hidden[piece.num_prompt_tokens - 1 :].to(dtype) for piece in pieces])


def answer_ids(pieces: Sequence[Piece]) -> Tensor:
    """The tokens that follow: int64 ``[R_0]``."""
    return torch.cat([piece.token_ids[piece.num_prompt_tokens :] for piece in pieces])


def unroll(
    head: DraftHead,
    embedding: Tensor,
    pieces: Sequence[Piece],
    depth: int,
    dropout: float = 0.0,
) -> Iterator[Tensor]:
    """Runs the head over all points of some texts.

    Args:
        head: whose gradients are recorded if they are asked for.
        embedding: the target's, ``[V, hidden]``.
        pieces: the texts.
        depth: how many drafts from each point.
        dropout: share of the head's input numbers that are left out (Srivastava et al. 2014).

    Yields:
        for each step the features ``[R_step, hidden]``, piece by piece.
    """
    attend = UnrolledAttend(pieces)
    features = _first_step(head, embedding, pieces, attend, dropout)
    yield features
    for step in range(1, depth):
        sizes = [max(0, piece.num_points - step + 1) for piece in pieces]
        before = torch.cat([rows[: max(0, len(rows) - 1)] for rows in features.split(sizes)])
        ids, positions = [], []
        for piece in pieces:
            start = min(piece.num_prompt_tokens - 1 + step, len(piece.token_ids) - 1)
            ids.append(piece.token_ids[start:-1])
            positions.append(torch.arange(start, len(piece.token_ids) - 1))
        rows = F.dropout(F.embedding(torch.cat(ids), embedding), dropout)
        features = head(rows, F.dropout(before, dropout), torch.cat(positions), attend)
        yield features


def _first_step(
    head: DraftHead,
    embedding: Tensor,
    pieces: Sequence[Piece],
    attend: "UnrolledAttend",
    dropout: float,
) -> Tensor:
    """Step 0 runs over the prompts too, for their keys; the features of the points are kept."""
    ids = torch.cat([piece.token_ids[:-1] for piece in pieces])
    dtype = embedding.dtype
    before = torch.cat([F.pad(piece.hidden[:-1].to(dtype), (0, 0, 1, 0)) for piece in pieces])
    positions = torch.cat([torch.arange(len(piece.token_ids) - 1) for piece in pieces])
    rows = F.dropout(F.embedding(ids, embedding), dropout)
    features = head(rows, F.dropout(before, dropout), positions, attend)
    sizes = [len(piece.token_ids) - 1 for piece in pieces]
    parts = zip(features.split(sizes), pieces, strict=True)
    return torch.cat([part[piece.num_prompt_tokens - 1 :] for part, piece in parts])


class UnrolledAttend:
    """The attention of `unroll`: whoever is called for the j-th time is step j.

    Args:
        pieces: the texts, in the order of the rows.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self.keys: list[list[tuple[Tensor, Tensor]]] = []  # by step, by piece

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As `Attend`: q ``[T, H, D]``, k and v ``[T, H_kv, D]``."""
        step, repeats = len(self.keys), q.shape[1] // k.shape[1]
        if step == 0:
            sizes = [len(piece.token_ids) - 1 for piece in self.pieces]
        else:
            sizes = [max(0, piece.num_points - step) for piece in self.pieces]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        self.keys.append(list(zip(k.split(sizes), v.split(sizes), strict=True)))
        one = self._later if step else self._causal
        return torch.cat([one(i, part) for i, part in enumerate(q.split(sizes))])

    def _causal(self, index: int, q: Tensor) -> Tensor:
        k, v = self.keys[0][index]
        q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1)

    def _later(self, index: int, q: Tensor) -> Tensor:
        """q ``[m, H, D]``, row r of point r."""
        (k, v), num_rows = self.keys[0][index], len(q)
        own = [self.keys[step][index] for step in range(1, len(self.keys))]
        scores = torch.einsum("mhd,shd->hms", q, k)
        first = self.pieces[index].num_prompt_tokens
        seen = torch.arange(len(k)) < first + torch.arange(num_rows)[:, None]
        scores = scores.masked_fill(~seen, float("-inf"))
        own_scores = [(q * keys[:num_rows]).sum(2).t()[..., None] for keys, _ in own]
        weights = torch.cat([scores, *own_scores], 2).mul(q.shape[2] ** -0.5).softmax(2)
        out = torch.einsum("hms,shd->mhd", weights[..., : len(k)], v)
        for i, (_, values) in enumerate(own):
            out = out + weights[..., len(k) + i].t()[..., None] * values[:num_rows]
        return out
