"""Predict first, then reveal: the question that an experiment asks before it shows its picture."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets

from .markup import inline, plain

Answer = float | int | str | Callable[..., Any]


@dataclass(frozen=True)
class Predict:
    """A question with one answer, to be committed to before the picture is shown.

    Attributes:
        question: One or two sentences; the marks of `markup.inline` work.
        answer: The right number or choice, or a function of the controls' values giving it.
        choices: The choices, for a question without a number.
        unit: Of the number asked for.
        explain: Why; a text, or a function of the controls' values giving one.
        within: A number counts as right within this fraction of the answer.
    """

    question: str
    answer: Answer
    choices: Sequence[str] = ()
    unit: str = ""
    explain: str | Callable[..., str] = ""
    within: float = 0.1

    def __post_init__(self) -> None:
        """Raises ValueError if the answer is not among the choices."""
        if self.choices and not callable(self.answer) and self.answer not in self.choices:
            raise ValueError(f"answer={self.answer!r} is not among choices={list(self.choices)}")

    def right_answer(self, values: dict[str, Any]) -> Any:
        """The answer at these values of the controls."""
        return self.answer(**values) if callable(self.answer) else self.answer

    def explanation(self, values: dict[str, Any]) -> str:
        """The explanation at these values of the controls."""
        return self.explain(**values) if callable(self.explain) else self.explain

    def parse(self, entry: str) -> float | str:
        """Turn what was entered into a prediction.

        Raises:
            ValueError: Nothing was chosen, or the entry is not a number; says what to enter.
        """
        if self.choices:
            if entry not in self.choices:
                raise ValueError("choose one of the answers first")
            return entry
        try:
            return float(entry.replace(",", "").replace("_", ""))
        except ValueError:
            raise ValueError(f"{entry!r} is not a number: write one like 2.5 or 3e6") from None

    def is_right(self, prediction: float | str, answer: Any) -> bool:
        """Whether the prediction counts as right."""
        if self.choices:
            return prediction == answer
        return abs(float(prediction) - float(answer)) <= self.within * abs(float(answer))

    def shown(self, value: Any) -> str:
        """A prediction or an answer as text, with its unit."""
        text = value if isinstance(value, str) else f"{float(value):,.4g}"
        return f"{text} {self.unit}".rstrip()

    def verdict(self, prediction: float | str | None, values: dict[str, Any]) -> str:
        """The feedback as HTML; `prediction` is None if the learner asked to be shown."""
        answer = self.right_answer(values)
        truth = f"<b>{html.escape(self.shown(answer))}</b>"
        why = inline(self.explanation(values))
        if prediction is None:
            return f"Answer: {truth}. {why}"
        said = html.escape(self.shown(prediction))
        if self.is_right(prediction, answer):
            return f"✓ You predicted {said}: right, it is {truth}. {why}"
        return f"✗ You predicted {said}; it is {truth}. {why}"

    def as_text(self, values: dict[str, Any]) -> str:
        """Question and answer for views without a kernel."""
        told = f"Predict first: {plain(self.question)}"
        if self.choices:
            told += " (" + " / ".join(self.choices) + ")"
        answer = self.shown(self.right_answer(values))
        return f"{told}\nAnswer: {answer}. {plain(self.explanation(values))}".rstrip()


class PredictPanel(widgets.VBox):
    """The question, an entry and two buttons; after that, the verdict.

    Args:
        predict: The question.
        reveal: Called once with the prediction, or None if the learner asked to be shown; returns
            the verdict as HTML.
    """

    def __init__(self, predict: Predict, reveal: Callable[[float | str | None], str]) -> None:
        self.predict = predict
        self._reveal = reveal
        self.entry = self._make_entry()
        self.commit_button = widgets.Button(
            description="Commit my prediction",
            button_style="primary",
            layout={"width": "auto"},
        )
        self.show_button = widgets.Button(
            description="Just show me", layout={"width": "auto"}, tooltip="Reveal, no prediction"
        )
        self.buttons = widgets.HBox([self.commit_button, self.show_button])
        self.feedback = widgets.HTML()
        self.feedback.add_class("mls-verdict")
        self.commit_button.on_click(lambda _: self.commit())
        self.show_button.on_click(lambda _: self.give_up())
        question = widgets.HTML(f"<b>Predict first.</b> {inline(predict.question)}")
        super().__init__([question, self.entry, self.buttons, self.feedback])
        self.add_class("mls-predict")

    def _make_entry(self) -> widgets.DOMWidget:
        if self.predict.choices:
            return widgets.RadioButtons(
                options=list(self.predict.choices), value=None, layout={"width": "auto"}
            )
        unit = f" ({self.predict.unit})" if self.predict.unit else ""
        return widgets.Text(
            placeholder=f"a number{unit}",
            description=f"My guess{unit}",
            style={"description_width": "initial"},
            layout={"width": "22em"},
        )

    def commit(self) -> None:
        """Take the entry as the prediction; a bad entry is answered, not swallowed."""
        try:
            prediction = self.predict.parse(str(self.entry.value or ""))
        except ValueError as error:
            self.feedback.value = html.escape(str(error))
            return
        self._finish(prediction)

    def give_up(self) -> None:
        """Reveal without a prediction."""
        self._finish(None)

    def _finish(self, prediction: float | str | None) -> None:
        self.entry.disabled = True
        self.buttons.layout.display = "none"
        self.feedback.value = self._reveal(prediction)

    def restart(self) -> None:
        """Ask again."""
        self.entry.disabled = False
        self.entry.value = None if self.predict.choices else ""
        self.buttons.layout.display = ""
        self.feedback.value = ""
