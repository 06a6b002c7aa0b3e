"""What is asked: three kinds of task, and the text that is read."""

import random
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from minillm_serve.distill.prompts import KINDS, PromptPlan, first_round, second_round
from minillm_serve.llm import LLM

TEXT = "the_ferry.txt"
#: Kind -> what it is called in tables.
TITLES = {"code": "code and format", "summary": "summary", "open": "open-ended"}


def read_text(file: Path | None = None) -> str:
    """The text that comes with the package, or somebody's own.

    Raises:
        ValueError: the file cannot be read, or is empty.
    """
    if file is None:
        return files("minillm_serve.quality").joinpath("texts", TEXT).read_text("utf-8")
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"text={str(file)!r} cannot be read: {error}") from error
    if not text.strip():
        raise ValueError(f"text={str(file)!r} is empty: give a file with some prose in it")
    return text


def paragraphs(text: str) -> list[str]:
    """A text in pieces of their own: what stands between empty lines."""
    return [piece.strip() for piece in text.split("\n\n") if piece.strip()]


def questions(count: int, text: str, seed: int = 0) -> dict[str, list[str]]:
    """So many questions of each kind, about topics and from templates that are held out.

    (Held out from the training of the draft head, chapter 07; here it only means that they are
    always the same.)

    Args:
        count: of each kind.
        text: its paragraphs are what is to be summarized.
        seed: of the draws.
    """
    draw = random.Random(seed)
    plan = PromptPlan(articles=0, code=count, retellings=1, questions=count)
    articles = [one for one in paragraphs(text) if len(one) > 400] or [text]
    chosen = [articles[i % len(articles)] for i in range(count)]
    asked = first_round(draw, plan, True) + second_round(draw, plan, True, chosen)
    return {kind: [q.text for q in asked if q.kind == kind] for kind in KINDS}


def as_prompts(llm: LLM, asked: Sequence[str]) -> list[list[int]]:
    """Questions in the model's chat template; as they are, if it has none."""
    if llm.tokenizer.chat_template is None:
        return [list(llm.tokenizer.encode(text)) for text in asked]
    return [llm.chat_prompt([{"role": "user", "content": text}]) for text in asked]
