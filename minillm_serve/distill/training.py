"""Trains a head on the target's own text; an interrupted run goes on to the very same result."""

import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from tqdm import tqdm

from minillm_serve.distill.unroll import Piece, answer_hidden, points, unroll
from minillm_serve.models.draft_head import DraftHead

#: Texts whose outputs tell how large a target's outputs are.
SAMPLE = 16


@dataclass(frozen=True)
class TrainPlan:
    """What decides a training, next to the texts.

    Attributes:
        seed: of the initial weights and of the order of the texts.
        steps: updates of the weights.
        points: answer tokens a step, at least; whole texts are taken until there are so many.
        depth: drafts that are unrolled from each point.
        shallow_steps: so many steps at the beginning unroll one draft only, which takes half the
            time and teaches most of what there is to learn.
        decay: weight of each draft's loss against that of the draft before it.
        guessing: weight of the cross-entropy against the distance of the features.
        learning_rate: the highest, after the warm-up; it falls to zero on a cosine.
        warm_up: steps of linear rise.
        weight_decay: AdamW's.
        dropout: share of the head's input numbers that are left out, others each time: a head with
            little text would otherwise learn it by heart.
        clip: most that the gradient's norm may be.
        fast: multiply in bfloat16.
    """

    seed: int = 0
    steps: int = 2400
    points: int = 300
    depth: int = 3
    shallow_steps: int = 1700
    decay: float = 0.8
    guessing: float = 0.3
    learning_rate: float = 2e-3
    warm_up: int = 100
    weight_decay: float = 0.1
    dropout: float = 0.1
    clip: float = 1.0
    fast: bool = True

    def depth_at(self, step: int) -> int:
        """Drafts that a step unrolls, counted from 0."""
        return 1 if step < self.shallow_steps else self.depth

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        rise = min(1.0, (step + 1) / max(1, self.warm_up))
        fall = 0.5 * (1 + math.cos(math.pi * step / max(1, self.steps)))
        return self.learning_rate * rise * fall


def initialise(head: DraftHead, seed: int, size: float = 1.0) -> None:
    """Fills the weights, and switches gradients on.

    Args:
        head: matrices get normal numbers, norms ones.
        seed: of the numbers.
        size: root mean square of the features; that of the target's outputs is a good beginning.
    """
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for linear in head.matrices().values():
            scale = linear.weight.shape[1] ** -0.5
            linear.weight.copy_(scale * torch.randn(linear.weight.shape, generator=draw))
        for norm in head.norms().values():
            norm.weight.fill_(1)
        head.norm.weight.fill_(size)
    for weight in trained(head):
        weight.requires_grad_(True)


def scale_of(embedding: Tensor) -> float:
    """What makes an embedding's numbers of size one.

    Tied embeddings are small, the target's outputs are not. Learning is faster when both are of one
    size; `fold` takes the factor into the weights in the end.
    """
    return 1 / embedding.square().mean().sqrt().item()


def fold(head: DraftHead, scale: float) -> None:
    """Makes a head that was trained with a scaled embedding one for the embedding as it is."""
    with torch.no_grad():
        head.fc.weight[:, : head.config.hidden_size] *= scale


def trained(head: DraftHead) -> list[nn.Parameter]:
    """The weights that are trained, in a fixed order."""
    matrices = [linear.weight for linear in head.matrices().values()]
    return matrices + [norm.weight for norm in head.norms().values()]


def train(
    head: DraftHead,
    embedding: Tensor,
    pieces: Sequence[Piece],
    plan: TrainPlan,
    checkpoint: Path,
    *,
    every: int = 250,
    judge: Callable[[], str] | None = None,
    progress: bool = True,
) -> list[float]:
    """Trains a head in place.

    Args:
        head: initialised here, or read from the checkpoint.
        embedding: the target's, ``[V, hidden]``, scaled by `scale_of`.
        pieces: the texts.
        plan: how.
        checkpoint: where the state is kept, every so many steps and at the end; a run whose
            checkpoint is there goes on from it.
        every: steps from one checkpoint, and judgement, to the next.
        judge: says how good the head is, in a few words for the progress bar.
        progress: show the bar.

    Returns:
        the loss of each step, those before the checkpoint included.

    Raises:
        ValueError: the checkpoint is of another plan.
    """
    outputs = torch.cat([piece.hidden for piece in pieces[:SAMPLE]]).float()
    initialise(head, plan.seed, outputs.square().mean().sqrt().item())
    optimizer = torch.optim.AdamW(
        trained(head), lr=plan.learning_rate, betas=(0.9, 0.95), weight_decay=plan.weight_decay
    )
    losses = _resume(head, optimizer, plan, checkpoint)
    said = judge() if judge and losses else ""
    with tqdm(total=plan.steps, initial=len(losses), desc="training", disable=not progress) as bar:
        for batch in islice(batches(pieces, plan), len(losses), plan.steps):
            losses.append(_update(head, embedding, batch, plan, optimizer, len(losses)))
            if len(losses) % every == 0 or len(losses) == plan.steps:
                _save(head, optimizer, plan, losses, checkpoint)
                said = judge() if judge else ""
            bar.set_postfix_str(f"loss {sum(losses[-20:]) / len(losses[-20:]):.3f} {said}")
            bar.update()
    return losses


def batches(pieces: Sequence[Piece], plan: TrainPlan) -> Iterator[list[Piece]]:
    """Batches without end: every text once in each round, in an order decided by the seed."""
    batch: list[Piece] = []
    for number in count():
        order = list(pieces)
        random.Random(f"{plan.seed}/{number}").shuffle(order)
        for piece in order:
            batch.append(piece)
            if sum(each.num_points for each in batch) >= plan.points:
                yield batch
                batch = []


def loss_of(
    head: DraftHead, embedding: Tensor, batch: Sequence[Piece], plan: TrainPlan, step: int
) -> Tensor:
    """How far features are from the target's outputs, and guesses from its distribution.

    As EAGLE's: a smooth L1 distance, which teaches fast, and the cross-entropy over the draft
    vocabulary, which is what counts. Mean over all drafts, the first ones weighing most.
    """
    truth = answer_hidden(batch, embedding.dtype)
    with torch.no_grad():
        wanted = head.logits(truth).float().softmax(1)
    total, weight, weights = torch.zeros(()), 1.0, 0.0
    steps = unroll(head, embedding, batch, plan.depth_at(step), plan.dropout)
    for draft, features in enumerate(steps):
        if not len(features):
            break
        rows = points(batch, draft)
        guessed = head.logits(features).float().log_softmax(1)
        wrong = -(wanted[rows] * guessed).sum(1).mean()
        far = F.smooth_l1_loss(features.float(), truth[rows])
        total = total + weight * (far + plan.guessing * wrong)
        weights += weight
        weight *= plan.decay
    return total / weights


def _update(
    head: DraftHead,
    embedding: Tensor,
    batch: Sequence[Piece],
    plan: TrainPlan,
    optimizer: torch.optim.Optimizer,
    step: int,
) -> float:
    with torch.random.fork_rng(devices=[]), torch.autocast("cpu", torch.bfloat16, plan.fast):
        torch.manual_seed(plan.seed * plan.steps + step)  # whoever goes on drops out the same
        loss = loss_of(head, embedding, batch, plan, step)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained(head), plan.clip)
    for group in optimizer.param_groups:
        group["lr"] = plan.rate(step)
    optimizer.step()
    return loss.item()


def _save(
    head: DraftHead,
    optimizer: torch.optim.Optimizer,
    plan: TrainPlan,
    losses: list[float],
    file: Path,
) -> None:
    """Writes beside the place and renames: an interrupted run leaves the checkpoint before."""
    partial = file.with_suffix(".partial")
    state = {
        "plan": asdict(plan),
        "weights": [weight.detach() for weight in trained(head)],
        "optimizer": optimizer.state_dict(),
        "losses": losses,
    }
    torch.save(state, partial)
    os.replace(partial, file)


def _resume(
    head: DraftHead, optimizer: torch.optim.Optimizer, plan: TrainPlan, file: Path
) -> list[float]:
    """Reads a checkpoint if there is one; returns the losses of the steps that were made."""
    if not file.is_file():
        return []
    state = torch.load(file, weights_only=True)
    if state["plan"] != asdict(plan):
        raise ValueError(
            f"{file} is the checkpoint of another training ({state['plan']}). Remove it, or give "
            "another --work directory."
        )
    with torch.no_grad():
        for weight, kept in zip(trained(head), state["weights"], strict=True):
            weight.copy_(kept)
    optimizer.load_state_dict(state["optimizer"])
    losses: list[float] = state["losses"]
    return losses
