"""`Quiz`: questions with choices, where every wrong answer is explained.

    Quiz([Question("Which of them does GQA shrink?", ["query heads", "KV heads"], answer=1,
                   why={0: "Queries are not cached: only keys and values are."})])

Native radio buttons and buttons in the browser, so the keyboard works as everywhere. Where no
kernel runs, the questions are read as text with the answers folded away.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anywidget
import traitlets

from .frontend import asset, view_data
from .markup import inline, plain


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        text: The question; the marks of `markup.inline` work here, in choices and in `why`.
        choices: Two or more.
        answer: Index of the right choice, from 0.
        why: Index of a choice -> its explanation. Each wrong choice needs one; the right one may
            have one too.
    """

    text: str
    choices: Sequence[str]
    answer: int
    why: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError if it cannot be answered, or a wrong choice goes unexplained."""
        count = len(self.choices)
        if count < 2:
            raise ValueError(f"question {self.text!r} needs two choices or more, not {count}")
        if not 0 <= self.answer < count:
            raise ValueError(
                f"question {self.text!r}: answer={self.answer} is not in 0..{count - 1}"
            )
        if unknown := [index for index in self.why if not 0 <= index < count]:
            raise ValueError(f"question {self.text!r}: why explains choices {unknown}, unknown")
        unexplained = [
            choice
            for index, choice in enumerate(self.choices)
            if index != self.answer and not self.why.get(index)
        ]
        if unexplained:
            raise ValueError(f"question {self.text!r}: why does not explain {unexplained}")

    def as_state(self) -> dict[str, Any]:
        """What the browser needs, as HTML."""
        return {
            "text": inline(self.text),
            "choices": [inline(choice) for choice in self.choices],
            "answer": self.answer,
            "why": [inline(self.why.get(index, "")) for index in range(len(self.choices))],
        }


def _letter(index: int) -> str:
    return chr(ord("a") + index)


class Quiz(anywidget.AnyWidget):
    """Questions, shown together; each is checked by itself, as often as one likes.

    Attributes:
        chosen: For each question the choice last checked, or None.
    """

    _esm = asset("quiz.js")
    _css = asset("quiz.css")

    questions_state: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    chosen: traitlets.List[int | None] = traitlets.List().tag(sync=True)

    def __init__(self, questions: Sequence[Question]) -> None:
        """Raises ValueError if there are no questions."""
        if not questions:
            raise ValueError("a Quiz needs at least one Question")
        self.questions = tuple(questions)
        super().__init__(
            questions_state=[question.as_state() for question in questions],
            chosen=[None] * len(questions),
        )

    @property
    def score(self) -> int:
        """Questions answered rightly so far."""
        return sum(
            choice == question.answer
            for choice, question in zip(self.chosen, self.questions, strict=True)
        )

    def __repr__(self) -> str:
        """The questions with their choices, and the answers at the end; the same at each run."""
        lines = [f"Quiz of {len(self.questions)} questions"]
        for number, question in enumerate(self.questions, 1):
            lines += ["", *textwrap.wrap(f"{number}. {plain(question.text)}", 96)]
            lines += [f"   {_letter(i)}) {plain(c)}" for i, c in enumerate(question.choices)]
        answers = [f"{n}{_letter(q.answer)}" for n, q in enumerate(self.questions, 1)]
        return "\n".join([*lines, "", f"Answers: {', '.join(answers)}"])

    def static_html(self) -> str:
        """The quiz as a page without scripts: answers and explanations folded away."""
        parts = ["<div><p><b>Quiz.</b> Think first, then unfold.</p><ol>"]
        for question in self.questions:
            choices = "".join(
                f"<li>{inline(choice, static=True)}</li>" for choice in question.choices
            )
            right = inline(question.choices[question.answer], static=True)
            answer = f"<b>{_letter(question.answer)})</b> {right}"
            why = "".join(
                f"<li><b>{_letter(index)})</b> {inline(question.why[index], static=True)}</li>"
                for index in sorted(question.why)
            )
            parts.append(
                f'<li><p>{inline(question.text, static=True)}</p><ol type="a">{choices}</ol>'
                f"<details><summary>Answer</summary><p>{answer}</p><ul>{why}</ul></details></li>"
            )
        return "".join([*parts, "</ol></div>"])

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Live quiz, foldable page, stable text: each front end takes what it can show."""
        data = {"text/plain": repr(self), "text/html": self.static_html(), **view_data(self)}
        return data, {}
