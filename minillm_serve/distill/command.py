"""`minillm-serve train-drafter`: text, hidden states, training, evaluation, one file and its card.

With the arguments' defaults it makes the head that comes with the embedded model. All that takes
time is kept in the working directory, so an interrupted run is started again by the same command.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from tqdm import tqdm

from minillm_serve.distill.card import write_card
from minillm_serve.distill.evaluation import evaluate
from minillm_serve.distill.record import as_record
from minillm_serve.distill.states import pieces_of
from minillm_serve.distill.text import (
    HELD_OUT,
    MAX_NUM_SEQS,
    TRAINING,
    Sample,
    TextPlan,
    check_plan,
    collect,
    frequent_ids,
    shards,
)
from minillm_serve.distill.training import TrainPlan, fold, scale_of, train
from minillm_serve.distill.unroll import Piece
from minillm_serve.llm import LLM
from minillm_serve.models.cache import cache_root, tell
from minillm_serve.models.draft_file import DraftFile, shape_of, write_draft_file
from minillm_serve.models.draft_head import FILE, DraftHead, load_draft_head
from minillm_serve.models.loader import load_model
from minillm_serve.models.resolve import resolve_model
from minillm_serve.models.transformer import Transformer

#: The longest prompt and answer that the recipe makes, in tokens.
MAX_MODEL_LEN = 1024
#: Held-out answers by which a training is judged while it runs.
JUDGED = 16


def main(argv: Sequence[str]) -> int:
    """Runs the recipe; prints where the head is and how good."""
    options = _parser().parse_args(argv)
    path = resolve_model(options.model)
    name = path.name
    work = options.work or cache_root() / "distill" / f"{name}-seed{options.seed}"
    text_plan = TextPlan(
        seed=options.seed,
        max_tokens=options.max_tokens,
        training=TRAINING.scaled(options.prompts),
        held_out=HELD_OUT.scaled(round(options.prompts * HELD_OUT.size / TRAINING.size)),
    )
    train_plan = TrainPlan(
        seed=options.seed,
        steps=options.steps,
        points=options.points,
        depth=options.depth,
        shallow_steps=min(options.shallow_steps, options.steps),
        learning_rate=options.learning_rate,
        warm_up=options.warm_up,
        fast=options.fast,
    )
    check_plan(work, name, text_plan)
    training, held_out = _texts(path, text_plan, work, options.tokens)
    target = load_model(path, dtype=torch.float32, device="cpu")
    if target.embedding.quantized is not None:
        raise ValueError(f"{path} is quantized: train the head on the same model in floats")
    samples = [sample for shard in training for sample in shard]
    pieces = _states(target, training, work, "training", options.fast)
    judged = _states(target, held_out, work, "held-out", False)
    ids = frequent_ids(
        samples, options.vocabulary, target.config.vocab_size, target.config.eos_token_ids
    )
    head = DraftHead(target, torch.tensor(ids))
    embedding = target.embedding.weight
    scale = scale_of(embedding)
    scaled = embedding * scale
    began = time.perf_counter()
    losses = train(
        head,
        scaled,
        pieces,
        train_plan,
        work / "checkpoint.pt",
        judge=lambda: _in_short(head, scaled, judged[:: max(1, len(judged) // JUDGED)]),
    )
    fold(head, scale)
    recipe = {
        "command": " ".join(["minillm-serve train-drafter", *argv]),
        "text": asdict(text_plan),
        "training": asdict(train_plan),
        "num_prompts": len(samples),
        "num_answer_tokens": sum(sample.num_answer_tokens for sample in samples),
        "num_weights": sum(layer.weight.numel() for layer in head.matrices().values()),
        "final_loss": round(sum(losses[-20:]) / len(losses[-20:]), 4),
        "last_run_s": round(time.perf_counter() - began),
    }
    output = options.output
    _write(head, target, name, output, recipe)
    rounded = load_draft_head(output, target)
    recipe["held_out"] = as_record(evaluate(rounded, embedding, judged, options.drafts))
    recipe["shares_of_ids"] = _covered(ids, [s for shard in held_out for s in shard])
    _write(head, target, name, output, recipe)
    card = write_card(output)
    print(f"{output / FILE}\n{card}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minillm-serve train-drafter",
        description="Trains a draft head on the model's own text. The defaults make the head that "
        "comes with the embedded model; the same command goes on with an interrupted run.",
    )
    text, training = TextPlan(), TrainPlan()
    add = parser.add_argument
    add("--model", default="smollm2-135m", help="whose head it will be (default: %(default)s)")
    add("--output", type=Path, default=Path("draft_head"), help="a directory (%(default)s)")
    add("--work", type=Path, help="where text, states and checkpoint are kept; by default a cache")
    add("--seed", type=int, default=0, help="of prompts, draws, weights and order (%(default)s)")
    group = parser.add_argument_group("text")
    add = group.add_argument
    add("--tokens", type=int, default=225_000, help="tokens to generate, at least (%(default)s)")
    add("--prompts", type=int, default=TRAINING.size, help="prompts of a shard (%(default)s)")
    add("--max-tokens", type=int, default=text.max_tokens, help="of an answer (%(default)s)")
    add("--vocabulary", type=int, default=8192, help="ids that can be drafted (%(default)s)")
    group = parser.add_argument_group("training")
    add = group.add_argument
    add("--steps", type=int, default=training.steps, help="updates (%(default)s)")
    add("--points", type=int, default=training.points, help="answer tokens a step (%(default)s)")
    add("--depth", type=int, default=training.depth, help="drafts unrolled (%(default)s)")
    add(
        "--shallow-steps",
        type=int,
        default=training.shallow_steps,
        help="steps at the beginning that unroll one draft (%(default)s)",
    )
    add("--learning-rate", type=float, default=training.learning_rate, help="(%(default)s)")
    add("--warm-up", type=int, default=training.warm_up, help="steps (%(default)s)")
    add(
        "--fast",
        action=argparse.BooleanOptionalAction,
        default=training.fast,
        help="multiply in bfloat16, but for what the head is judged by (default: %(default)s)",
    )
    add("--drafts", type=int, default=6, help="most drafts a step in evaluation (%(default)s)")
    return parser


def _texts(
    path: Path, plan: TextPlan, work: Path, num_tokens: int
) -> tuple[list[list[Sample]], list[list[Sample]]]:
    """Shards to train on, and a shard to judge by."""
    llm = LLM(path, prefix_cache=None, max_num_seqs=MAX_NUM_SEQS, max_model_len=MAX_MODEL_LEN)
    training = list(_shown(collect(shards(llm, plan, work), num_tokens), num_tokens))
    held_out = list(collect(shards(llm, plan, work, held_out=True), 1))
    return training, held_out


def _shown(source: Iterator[list[Sample]], num_tokens: int) -> Iterator[list[Sample]]:
    with tqdm(total=num_tokens, desc="text", unit="tok", unit_scale=True) as bar:
        for shard in source:
            bar.update(sum(sample.num_answer_tokens for sample in shard))
            yield shard


def _states(
    target: Transformer, parts: Sequence[Sequence[Sample]], work: Path, name: str, fast: bool
) -> list[Piece]:
    pieces: list[Piece] = []
    for number, samples in enumerate(tqdm(parts, desc=f"{name} states", unit="shard")):
        file = work / f"{name}-{number:04d}.states.safetensors"
        pieces.extend(pieces_of(target, samples, file, fast=fast))
    return pieces


def _in_short(head: DraftHead, embedding: torch.Tensor, pieces: Sequence[Piece]) -> str:
    """Tokens out per verification step with four drafts, kind by kind, on a few answers."""
    found = evaluate(head, embedding, pieces, most_drafts=4)
    return " ".join(f"{kind} {by_k[4].tokens_per_step:.2f}" for kind, by_k in found.items())


def _covered(ids: Sequence[int], samples: Sequence[Sample]) -> float:
    """The share of held-out answer tokens that can be drafted at all."""
    known = set(ids)
    answers = [token for s in samples for token in s.token_ids[s.num_prompt_tokens :]]
    return round(sum(token in known for token in answers) / len(answers), 4)


def _write(
    head: DraftHead, target: Transformer, name: str, output: Path, recipe: dict[str, object]
) -> None:
    file = DraftFile(
        target=name,
        shape=shape_of(target.config),
        vocabulary=head.vocabulary,
        matrices={key: linear.weight for key, linear in head.matrices().items()},
        norms={key: norm.weight for key, norm in head.norms().items()},
        recipe=recipe,
    )
    write_draft_file(output / FILE, file)
    tell(f"wrote {output / FILE}")
