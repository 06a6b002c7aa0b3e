"""The card of a head: what it is, how it was made, how good it is; from the file's own metadata."""

from pathlib import Path

from minillm_serve.distill.record import acceptance_table, tokens_table
from minillm_serve.models.draft_file import read_draft_file
from minillm_serve.models.draft_head import FILE

CARD = "README.md"
#: What stands below this line of a card was written by hand, and is kept.
BY_HAND = "## What was tried"

_TEXT = """# Draft head for {target}

One decoder layer that drafts tokens for speculative decoding with {target}; see
`minillm_serve/models/draft_head.py`. It shares the target's embedding and output head.

- {weights:,} weights of its own, as 8-bit codes with a float16 step for each 32: {size:.1f} MB.
- {ids:,} of the target's {vocab:,} ids can be drafted; they are {covered:.1f} % of the tokens of
  the held-out answers.
- Data: {prompts:,} prompts made from templates and topics (`minillm_serve/distill/`), answered
  by the target itself: {tokens:,} tokens. No other text was used.
- Training: {steps:,} steps of {points:,} answer tokens or more, the first {shallow:,} of them with
  one draft from each point, the others with {depth} unrolled; AdamW, {rate:g} at most, dropout
  {dropout:g}, seed {seed}. Loss at the end: {loss:.3f}.

It is made by

    {command}

## How good it is

Mean tokens out per verification step, the target's own token counted, on greedy answers to held-out
prompts (topics and templates that no training prompt has), replayed offline with the weights of the
file. k is the number of drafts a step.

{tokens_table}

Share of drafts that are kept, of those whose predecessors were:

{acceptance_table}

A head knows what it was trained on: expect less on other kinds of text, on long contexts (texts
here are shorter than 1,024 tokens) and in other languages. Acceptance changes the speed only, never
what the target says.
"""


def render(directory: Path) -> str:
    """The part of a card that follows from the file of a head in ``directory``."""
    file = directory / FILE
    found = read_draft_file(file)
    recipe, training = found.recipe, found.recipe["training"]
    return _TEXT.format(
        target=found.target,
        weights=recipe["num_weights"],
        size=file.stat().st_size / 1e6,
        ids=len(found.vocabulary),
        vocab=found.shape["vocab_size"],
        covered=100 * recipe["shares_of_ids"],
        prompts=recipe["num_prompts"],
        tokens=recipe["num_answer_tokens"],
        steps=training["steps"],
        points=training["points"],
        depth=training["depth"],
        shallow=training["shallow_steps"],
        rate=training["learning_rate"],
        dropout=training["dropout"],
        seed=training["seed"],
        loss=recipe["final_loss"],
        command=recipe["command"],
        tokens_table=tokens_table(recipe["held_out"]),
        acceptance_table=acceptance_table(recipe["held_out"]),
    )


def write_card(directory: Path) -> str:
    """Writes the card beside the file, keeps what was written by hand, and returns all of it."""
    card = directory / CARD
    old = card.read_text("utf-8") if card.is_file() else ""
    kept = old[old.index(BY_HAND) :] if BY_HAND in old else ""
    text = render(directory) + (f"\n{kept}" if kept else "")
    card.write_text(text, "utf-8")
    return text
