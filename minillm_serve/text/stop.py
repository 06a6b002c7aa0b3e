"""Stop strings: found in text, not in tokens, with nothing of them told before they are whole."""

from collections.abc import Sequence
from typing import NamedTuple


class StopUpdate(NamedTuple):
    """What a piece of text led to.

    Attributes:
        text: safe to tell.
        stopped: the stop string that was found; None if none.
    """

    text: str
    stopped: str | None


class StopMatcher:
    """Looks for stop strings in text that arrives in pieces.

    The longest tail that could begin a stop string is held back, so a reader never sees a part of
    one; when the text ends without a match, `flush` returns it. Text is cut before the match that
    starts earliest among those in the text so far; of two that start together the shorter
    counts, which would also have been found first had its end come in a token of its own. So a stop
    string ends the output as soon as it is whole, even if a longer one has begun before it.

    Each stop string has an automaton (Knuth, Morris and Pratt, 1977, "Fast pattern matching in
    strings") whose state is the number of its characters that the text ends with: the largest state
    is what has to be held back. A character costs O(1) for each stop string.

    Args:
        stops: stop strings, in code points; may be none.
        include_in_output: leave the stop string in the text (what follows it is cut all the same).

    Raises:
        ValueError: a stop string is empty, which every text contains.
    """

    def __init__(self, stops: Sequence[str], *, include_in_output: bool = False) -> None:
        if "" in stops:
            raise ValueError("stop contains '': leave out empty stop strings")
        self._stops = tuple(stops)
        self._borders = [_borders(stop) for stop in self._stops]
        self._states = [0] * len(self._stops)
        self._peeked: list[int] | None = None
        self._include_in_output = include_in_output
        self._held = ""

    def feed(self, text: str, *, armed_from: int = 0) -> StopUpdate:
        """Takes in the next piece of text.

        Args:
            text: the piece.
            armed_from: stop strings that end among the first so many characters of it do not count.

        Returns:
            What is safe to tell. After a match nothing more may be fed or flushed.
        """
        self._peeked = None
        if not self._stops:
            return StopUpdate(text, None)
        matches = _advance(self._stops, self._borders, self._states, text, armed_from)
        num_held = len(self._held)
        text = self._held + text
        if not matches:
            safe = len(text) - max(self._states)
            self._held = text[safe:]
            return StopUpdate(text[:safe], None)
        spans = [(num_held + end - len(stop), len(stop), stop) for end, stop in matches]
        start, length, stop = min(spans)
        self._held = ""
        return StopUpdate(text[: start + length * self._include_in_output], stop)

    def peek(self, text: str, *, armed: bool = True) -> bool:
        """Whether a stop string ends in `text`, were it to follow what was fed and peeked at.

        What was peeked at is forgotten at the next `feed`.
        """
        if not self._stops:
            return False
        if self._peeked is None:
            self._peeked = list(self._states)
        from_ = 0 if armed else len(text)
        return bool(_advance(self._stops, self._borders, self._peeked, text, from_))

    def flush(self) -> str:
        """Returns what was held back: the text ends without a stop string."""
        held, self._held = self._held, ""
        return held


def _advance(
    stops: Sequence[str], borders: list[list[int]], states: list[int], text: str, armed_from: int
) -> list[tuple[int, str]]:
    """Moves the automata over `text`; returns each stop string's first end in it, if any."""
    matches = []
    for index, stop in enumerate(stops):
        state, border = states[index], borders[index]
        if state == 0 and stop[0] not in text:
            continue
        for end, char in enumerate(text, start=1):
            while state and stop[state] != char:
                state = border[state]
            state += stop[state] == char
            if state == len(stop):
                state = border[state]
                if end > armed_from:
                    matches.append((end, stop))
                    break
        states[index] = state
    return matches


def _borders(stop: str) -> list[int]:
    """For each length n: the longest border of `stop[:n]`, a proper prefix that is its suffix."""
    borders = [0, 0]
    for char in stop[1:]:
        size = borders[-1]
        while size and stop[size] != char:
            size = borders[size]
        borders.append(size + (stop[size] == char))
    return borders
