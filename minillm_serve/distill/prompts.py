"""Prompts of three kinds, from templates and topics, drawn by a seed.

A shard of prompts comes in two rounds, since a text must be written before it can be summarized:

    first round     articles (open-ended), functions and lists (code and format)
    second round    summaries of the articles, and more open-ended questions

Held-out prompts come from topics *and* templates that no training prompt has.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from minillm_serve.distill.topics import subjects, tasks, things

KINDS = ("code", "summary", "open")

#: Of training answers, this share is greedy; the others are drawn at one of TEMPERATURES.
GREEDY_SHARE = 0.6
TEMPERATURES = (0.7, 0.8, 0.9, 1.0)
#: Articles are always drawn, so that one topic gives a different text each time.
ARTICLE_TEMPERATURE = 0.8

#: kind of template -> templates; the last HELD_OUT_TEMPLATES of each are held out.
TEMPLATES = {
    "function": (
        "Write a Python function that {}.",
        "Write a function in Python that {}. Add a docstring.",
        "Write a JavaScript function that {}.",
        "Show me Python code that {}.",
        "Write a short Python program that {}, with an example of its use.",
        "Write a Java method that {}.",
        "Implement in Python: code that {}. Then explain it line by line.",
        "Write a Python function that {} and three unit tests for it.",
        "Write a C function that {}.",
        "Give me a Python script that {}.",
        "Please write code in Python that {}. Return only the code.",
    ),
    "list": (
        "Make a markdown table of {}.",
        "Write {} as JSON.",
        "Write {} as CSV with a header line.",
        "Make a numbered list of {}.",
        "Make a bullet list of {}, one line each.",
        "Give me {} as an HTML table.",
        "Write {} as a Python dictionary.",
        "Write {} as YAML.",
        "Convert {} to a JSON array of objects.",
        "Show {} in a table with three columns.",
        "List {} in JSON format, with a short description of each.",
    ),
    "summary": (
        "Summarize the following text:\n\n{}",
        "Summarize the following text in two sentences:\n\n{}",
        "List the key points of this text:\n\n{}",
        "Rewrite the following text in simple words:\n\n{}",
        "{}\n\nWhat is the main idea of this text?",
        "Write a short summary of this article:\n\n{}",
        "Shorten this text:\n\n{}",
        "Correct the grammar of the following text and repeat it:\n\n{}",
        "Make a bullet list of the facts in the following text:\n\n{}",
        "Summarize this for a child:\n\n{}",
        "Read the text below and write a brief summary of it.\n\n{}",
    ),
    "article": (
        "Write a short text about {}.",
        "Write one paragraph about {}.",
        "Write a short article about {}.",
        "Write an introduction to {}.",
        "Write a few facts about {}, as running text.",
    ),
    "question": (
        "Explain {} to me.",
        "Tell me a short story about {}.",
        "What should I know about {}?",
        "Give me some advice about {}.",
        "Why does {} matter?",
        "Write a poem about {}.",
        "What are the most interesting things about {}?",
        "Write a dialogue between two friends about {}.",
        "Describe {} in your own words.",
        "Write a letter to a friend about {}.",
        "What do people often get wrong about {}?",
    ),
}
HELD_OUT_TEMPLATES = 2


@dataclass(frozen=True)
class Question:
    """A prompt, and how it is to be answered.

    Attributes:
        kind: one of ``KINDS``.
        text: what the user says.
        temperature: 0 is greedy.
        seed: of the answer's draws.
        article: whether the answer will be summarized in the second round.
    """

    kind: str
    text: str
    temperature: float
    seed: int
    article: bool = False


@dataclass(frozen=True)
class PromptPlan:
    """How many prompts of each sort a shard has.

    Attributes:
        articles: texts to be written.
        code: functions and lists.
        retellings: questions about each article, at most as many as there are held-out templates.
        questions: open-ended ones.
    """

    articles: int
    code: int
    retellings: int
    questions: int

    @property
    def size(self) -> int:
        """Prompts in a shard."""
        return self.articles * (1 + self.retellings) + self.code + self.questions

    def scaled(self, size: int) -> "PromptPlan":
        """A plan of about so many prompts, with the same proportions, each sort at least once."""
        share = size / self.size
        count = {
            name: max(1, round(share * getattr(self, name)))
            for name in ("articles", "code", "questions")
        }
        return replace(self, **count)


def templates(name: str, held_out: bool) -> tuple[str, ...]:
    """The templates of one sort for training, or the held-out ones."""
    all_of_them = TEMPLATES[name]
    cut = len(all_of_them) - HELD_OUT_TEMPLATES
    return all_of_them[cut:] if held_out else all_of_them[:cut]


def first_round(draw: random.Random, plan: PromptPlan, held_out: bool) -> list[Question]:
    """Articles, and functions and lists in turn."""
    questions = []
    for _ in range(plan.articles):
        text = _fill(draw, "article", subjects(held_out), held_out)
        seed = draw.getrandbits(32)
        questions.append(Question("open", text, ARTICLE_TEMPERATURE, seed, article=True))
    for i in range(plan.code):
        name, topics = ("list", things(held_out)) if i % 2 else ("function", tasks(held_out))
        text = _fill(draw, name, topics, held_out)
        questions.append(Question("code", text, *_manner(draw, held_out)))
    return questions


def second_round(
    draw: random.Random, plan: PromptPlan, held_out: bool, articles: Sequence[str]
) -> list[Question]:
    """Different questions about each of the articles, and open-ended ones."""
    questions = []
    for article in articles:
        text = _whole_sentences(article)
        for template in draw.sample(templates("summary", held_out), plan.retellings):
            questions.append(Question("summary", template.format(text), *_manner(draw, held_out)))
    for _ in range(plan.questions):
        text = _fill(draw, "question", subjects(held_out), held_out)
        questions.append(Question("open", text, *_manner(draw, held_out)))
    return questions


def _fill(draw: random.Random, name: str, topics: Sequence[str], held_out: bool) -> str:
    return draw.choice(templates(name, held_out)).format(draw.choice(topics))


def _manner(draw: random.Random, held_out: bool) -> tuple[float, int]:
    """Temperature and seed; held-out answers are greedy, as they are compared token by token."""
    greedy, temperature = draw.random() < GREEDY_SHARE, draw.choice(TEMPERATURES)
    return 0.0 if greedy or held_out else temperature, draw.getrandbits(32)


def _whole_sentences(text: str) -> str:
    """The text without the sentence that its length limit has cut, if any sentence is whole."""
    end = max(text.rfind(mark) for mark in ".!?")
    return text[: end + 1].strip() if end > 0 else text.strip()
