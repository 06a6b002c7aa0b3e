"""How good a head is: tokens out per verification step, replayed offline.

A greedy answer is what a greedy target would say again, so drafts can be judged against it without
a serving engine. At a point where the first r tokens of the answer are known, k drafts are made and
kept as long as they are the tokens that follow; the target then adds one. So does the engine.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minillm_serve.distill.unroll import Piece, answer_ids, points, unroll
from minillm_serve.models.draft_head import DraftHead

#: Points of one pass through the head.
POINTS = 2048


@dataclass(frozen=True)
class Replay:
    """What one answer, or several, took.

    Attributes:
        num_steps: verification steps.
        num_tokens: tokens that they gave, the target's own included.
        num_reached: for each draft position, the steps in which all drafts before were kept and
            there was a token left to draft.
        num_kept: for each draft position, the steps in which that draft was kept.
    """

    num_steps: int
    num_tokens: int
    num_reached: tuple[int, ...]
    num_kept: tuple[int, ...]

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens out per verification step; 1 is decoding without drafts."""
        return self.num_tokens / self.num_steps if self.num_steps else 1.0

    @property
    def acceptance(self) -> list[float]:
        """For each draft position the share kept, of those that were reached."""
        pairs = zip(self.num_kept, self.num_reached, strict=True)
        return [kept / reached if reached else 0.0 for kept, reached in pairs]


@torch.no_grad()
def hits(head: DraftHead, embedding: Tensor, pieces: Sequence[Piece], depth: int) -> list[Tensor]:
    """Whether draft j + 1 from point r is the token that follows, if those before it are.

    Args:
        head: of the target that computed the pieces.
        embedding: the target's, ``[V, hidden]``.
        pieces: greedy answers.
        depth: drafts from a point.

    Returns:
        for each piece bool ``[depth, num_points]``; False where the text has ended.
    """
    found = [torch.zeros(depth, piece.num_points, dtype=torch.bool) for piece in pieces]
    for batch, results in _batches(pieces, found):
        answers = answer_ids(batch)
        for step, features in enumerate(unroll(head, embedding, batch, depth)):
            drafts = head.vocabulary[head.logits(features).argmax(1)]
            right = drafts == answers[points(batch, step)]
            sizes = [max(0, piece.num_points - step) for piece in batch]
            for result, part in zip(results, right.split(sizes), strict=True):
                result[step, : len(part)] = part
    return found


def replay(right: Tensor, num_drafts: int) -> Replay:
    """Decodes one answer with so many drafts a step.

    Args:
        right: bool ``[depth, num_points]``, from `hits`.
        num_drafts: k, at most depth.
    """
    runs = right[:num_drafts].long().cumprod(0).sum(0).tolist()
    steps, total = 0, len(runs)
    reached, kept = [0] * num_drafts, [0] * num_drafts
    known = 1  # the first token of the answer comes with the prompt's last
    while known < total:
        run, left = runs[known], total - known
        for position in range(min(num_drafts, left, run + 1)):
            reached[position] += 1
            kept[position] += position < run
        steps += 1
        known += min(run + 1, left)
    return Replay(steps, max(0, total - 1), tuple(reached), tuple(kept))


def together(replays: Iterable[Replay]) -> Replay:
    """Several answers as if they were one; all with the same number of drafts."""
    found = list(replays)
    return Replay(
        sum(each.num_steps for each in found),
        sum(each.num_tokens for each in found),
        tuple(map(sum, zip(*(each.num_reached for each in found), strict=True))),
        tuple(map(sum, zip(*(each.num_kept for each in found), strict=True))),
    )


def evaluate(
    head: DraftHead, embedding: Tensor, pieces: Sequence[Piece], most_drafts: int = 6
) -> dict[str, dict[int, Replay]]:
    """kind of prompt -> drafts a step -> what all greedy answers of that kind took."""
    greedy = [piece for piece in pieces if piece.greedy]
    right = hits(head, embedding, greedy, most_drafts)
    return {
        kind: {
            k: together(
                replay(each, k)
                for each, piece in zip(right, greedy, strict=True)
                if piece.kind == kind
            )
            for k in range(1, most_drafts + 1)
        }
        for kind in sorted({piece.kind for piece in greedy})
    }


def _batches(
    pieces: Sequence[Piece], found: Sequence[Tensor]
) -> Iterable[tuple[list[Piece], list[Tensor]]]:
    batch: list[Piece] = []
    results: list[Tensor] = []
    for piece, result in zip(pieces, found, strict=True):
        batch.append(piece)
        results.append(result)
        if sum(each.num_points for each in batch) >= POINTS:
            yield batch, results
            batch, results = [], []
    if batch:
        yield batch, results
