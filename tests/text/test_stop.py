"""Stop strings in text that arrives in pieces: nothing leaked, nothing lost."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minillm_serve.text.stop import StopMatcher

Told = tuple[list[str], str | None]


def tell(stops: list[str], pieces: list[str], *, include: bool = False) -> Told:
    """Feeds pieces until one stops, or to the end."""
    matcher = StopMatcher(stops, include_in_output=include)
    told = []
    for piece in pieces:
        text, stopped = matcher.feed(piece)
        told.append(text)
        if stopped is not None:
            return told, stopped
    return [*told, matcher.flush()], None


def spans(text: str, stops: list[str]) -> list[tuple[int, int, str]]:
    """Start, length and string of each match, by trying every place."""
    places = [(i, stop) for stop in stops for i in range(len(text)) if text.startswith(stop, i)]
    return [(i, len(stop), stop) for i, stop in places]


def expected(stops: list[str], pieces: list[str], include: bool) -> tuple[str, str | None]:
    """What is told in all, by looking at the whole text so far after each piece."""
    text = ""
    for piece in pieces:
        text += piece
        if found := spans(text, stops):
            start, length, stop = min(found)
            return text[: start + length * include], stop
    return text, None


def test_the_tail_that_could_begin_a_stop_string_is_held_back():
    """B69: the reader never sees any part of a stop string."""
    assert tell(["lake ho"], ["by the", " lake", " house"]) == (["by the", " ", ""], "lake ho")
    assert tell(["\nQ:"], ["yes", "\nQ", ": no"]) == (["yes", "", ""], "\nQ:")
    assert tell([" lake ho"], ["by the", " lake", "s"]) == (["by the", "", " lakes", ""], None)


def test_a_stop_string_is_found_over_borders_of_pieces_and_inside_one():
    """B70: stops are text, not tokens."""
    assert tell(["red green"], ["a red", " green", " b"]) == (["a ", ""], "red green")
    assert tell(["Lon"], ["to ", "London"]) == (["to ", ""], "Lon")
    assert tell(["abc"], ["x", "a", "b", "c"]) == (["x", "", "", ""], "abc")


@pytest.mark.parametrize("ending", [[], [""], ["", ""]])
def test_held_text_is_released_at_the_end_if_nothing_matched(ending: list[str]):
    """B71 B73."""
    told, stopped = tell(["[end]tail", "\n\n"], ["le", "[en", "d]", "ta", *ending])
    assert ("".join(told), stopped) == ("le[end]ta", None)
    assert "".join(tell(["\n\n"], ["text.\n"])[0]) == "text.\n"


def test_text_is_cut_at_the_earliest_start():
    """B74: no part of the longer or the shorter stop string remains, in whichever order."""
    for stops in (["## STOP", "## STOP\n"], ["## STOP\n", "## STOP"]):
        for pieces in (["a ## STOP\nb"], ["a ## ", "STOP", "\nb"], list("a ## STOP\nb")):
            told, stopped = tell(stops, pieces)
            assert ("".join(told), stopped) == ("a ", "## STOP")
    assert tell(["cd", "bcde"], ["abcdef"]) == (["a"], "bcde")


def test_a_stop_string_ends_the_text_before_a_longer_one_around_it_is_whole():
    """B74: waiting for it could take for ever; what was held for it is text."""
    assert tell(["cd", "abcdef"], ["xab", "cd", "ef"]) == (["x", "ab"], "cd")


def test_a_stop_string_may_be_included():
    assert tell(["lo w"], ["hel", "lo", " world"], include=True) == (["he", "l", "lo w"], "lo w")
    assert tell(["lo w"], ["hel", "lo"], include=True) == (["he", "l", "lo"], None)


def test_stop_strings_are_code_points():
    """B79: an accent of its own, a joiner, a character beyond the 16-bit plane."""
    assert tell(["\u0301"], ["e", "\u0301x"]) == (["e", ""], "\u0301")
    assert tell(["\u200d👩"], ["👨", "\u200d", "👩"]) == (["👨", "", ""], "\u200d👩")


def test_stop_strings_that_overlap_themselves_are_found():
    assert tell(["aab"], ["aaa", "ab"]) == (["a", "a"], "aab")
    assert tell(["abab c"], ["ababab", " c"]) == (["ab", ""], "abab c")


def test_unarmed_text_ends_no_stop_string_but_may_begin_one():
    """The stop string in the first piece does not count; one that ends behind it does."""
    matcher = StopMatcher(["aa"])
    assert matcher.feed("aa", armed_from=2) == ("a", None)
    assert matcher.feed("a") == ("", "aa")
    matcher = StopMatcher(["ab"])
    assert matcher.feed("ab ab", armed_from=2) == ("ab ", "ab")


def test_peeking_changes_nothing():
    matcher = StopMatcher(["abc"])
    matcher.feed("xa")
    assert not matcher.peek("b")
    assert matcher.peek("c")
    assert not matcher.peek("c")
    assert matcher.feed("d") == ("ad", None)
    assert not matcher.peek("bc")


def test_without_stop_strings_text_passes_at_once():
    assert tell([], ["a", "b"]) == (["a", "b", ""], None)


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="leave out empty"):
        StopMatcher(["x", ""])


LETTERS = st.text("ab\n", max_size=6)


@given(
    stops=st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4),
    pieces=st.lists(LETTERS, max_size=12),
    include=st.booleans(),
)
@example(stops=["aab", "ab"], pieces=["a", "aa", "b"], include=False)
def test_any_text_in_any_pieces_ends_where_the_whole_text_would(
    stops: list[str], pieces: list[str], include: bool
):
    """B69 B70 B71 B73 B74: against a search of the whole text after every piece."""
    told, stopped = tell(stops, pieces, include=include)
    assert ("".join(told), stopped) == expected(stops, pieces, include)


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4),
    pieces=st.lists(st.text("abc", max_size=6), max_size=12),
)
def test_exactly_the_longest_tail_that_could_begin_a_stop_string_is_held(
    stops: list[str], pieces: list[str]
):
    """B69: no less, or a reader would see a part of one; no more, or text would come late."""
    matcher = StopMatcher(stops)
    text = told = ""
    for piece in pieces:
        text += piece
        new, stopped = matcher.feed(piece)
        told += new
        if stopped is not None:
            return
        tails = [text[start:] for start in range(len(text) + 1)]
        held = next(tail for tail in tails if any(stop.startswith(tail) for stop in stops))
        assert told == text[: len(text) - len(held)]
