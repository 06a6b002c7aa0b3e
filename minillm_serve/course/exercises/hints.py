"""Staged hints: one at a time, the next one folded away."""

from __future__ import annotations

import html
from collections.abc import Sequence

from minillm_serve.course.exercises.score import hints_html


class Hint:
    """One hint, and how to get the next."""

    def __init__(self, name: str, hints: Sequence[str], number: int) -> None:
        """Raises ValueError if there is no hint of that number."""
        if not 1 <= number <= len(hints):
            raise ValueError(f"{name} has hints 1 to {len(hints)}, not {number}")
        self.name, self.hints, self.number = name, tuple(hints), number

    def __repr__(self) -> str:
        """The hint and the call that shows the next one."""
        return self._text(f'hint("{self.name}", {self.number + 1})')

    def for_shell(self) -> str:
        """The hint and the command that shows the next one."""
        return self._text(f"minillm-serve exercises hint {self.name} {self.number + 1}")

    def _text(self, following: str) -> str:
        text = f"Hint {self.number} of {len(self.hints)}: {self.hints[self.number - 1]}"
        last = self.number == len(self.hints)
        return f"{text}\n{'That was the last one.' if last else f'The next one: {following}'}"

    def _repr_html_(self) -> str:
        """The hint, with the next ones folded."""
        head = f"<b>Hint {self.number} of {len(self.hints)}.</b> "
        later = hints_html(self.hints[self.number :], start=self.number + 1)
        return f"<div><p>{head}{html.escape(self.hints[self.number - 1])}</p>{later}</div>"
