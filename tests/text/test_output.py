"""Ids, text and offsets of one output end at the same token."""

import random
from functools import cache
from itertools import takewhile
from typing import Any

import pytest

from minillm_serve.text.output import OutputText, TextUpdate
from minillm_serve.text.vocabulary import Vocabulary
from tests.text import built
from tests.text.built import decode

#: The kinds in which the text that an output would have if it ended now is known at every token.
KINDS = [kind for kind in built.UNDERSTOOD if kind not in built.LATE]


@cache
def vocabulary_of(kind: str) -> tuple[Any, Vocabulary]:
    """A built tokenizer and its vocabulary."""
    tokenizer = built.UNDERSTOOD[kind]()
    return tokenizer, Vocabulary(tokenizer)


def ids_of(kind: str, *tokens: str) -> list[int]:
    """Ids of tokens, which must exist."""
    ids = [vocabulary_of(kind)[0].get_vocab()[token] for token in tokens]
    assert len(ids) == len(tokens)
    return ids


def output(kind: str, **options: Any) -> OutputText:
    """An empty output."""
    return OutputText(vocabulary_of(kind)[1], **options)


def run(text: OutputText, groups: list[list[int]]) -> tuple[str, int, str | None]:
    """Takes groups of ids and ends; returns the text, the tokens kept and the stop string."""
    told, kept = "", 0
    for group in groups:
        update = text.take(group)
        told, kept = told + update.text, kept + update.num_tokens_kept
        if update.stopped is not None:
            break
    told += text.finish().text
    assert len(text.offsets) == kept
    assert text.offsets == sorted(text.offsets)
    assert "".join(text.token_texts(told)) == told
    return told, kept, text.stopped


def test_a_stop_string_in_the_middle_of_accepted_tokens_drops_the_rest():
    """B50 B53: four tokens come at once; the second completes the stop string and is the last."""
    text = output("metaspace, never", stop=[" red gr"])
    group = ids_of("metaspace, never", "▁the", "▁red", "▁green", "▁house")
    assert text.take(group) == TextUpdate(" the", " red gr", 3)
    assert text.offsets == [0, 4, 4]
    assert text.token_texts(" the") == [" the", "", ""]
    assert text.take(group) == TextUpdate("", " red gr", 0)
    assert text.finish() == TextUpdate("", " red gr", 0)


def test_the_same_tokens_end_alike_however_they_were_grouped():
    """B52 B53: text, number of tokens and stop string do not depend on speculation."""
    group = ids_of("metaspace, never", "▁a", "▁a", "▁the", "▁a", "▁a", "b", "▁the")
    for sizes in ([7], [1] * 7, [2, 3, 2], [5, 2]):
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        groups = [group[at : at + size] for at, size in zip(starts, sizes, strict=True)]
        text = output("metaspace, never", stop=[" a ab"])
        assert run(text, groups) == (" a a the", 6, " a ab")


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_token_is_kept_without_its_text_unless_it_is_to_be_included(include: bool):
    """B50 B52 B97: also one that is an ordinary word; it counts as a token either way."""
    text = output("metaspace, never", include_stop_str_in_output=include)
    update = text.take(ids_of("metaspace, never", "▁the", "▁house"), ends_with_stop_token=True)
    assert update == TextUpdate(" the house" if include else " the", None, 2)
    assert text.finish() == TextUpdate("", None, 0)
    assert text.token_texts(update.text) == [" the", " house" if include else ""]


def test_text_held_for_a_stop_string_is_told_when_a_stop_token_ends_the_output():
    """B71 B73: 'ta' could have begun 'table'."""
    text = output("byte level", stop=["b a"])
    assert text.take(ids_of("byte level", "a", "b")) == TextUpdate("a", None, 2)
    assert text.take(ids_of("byte level", "</s>"), ends_with_stop_token=True).text == ""
    assert text.finish() == TextUpdate("b", None, 0)


def test_a_broken_tail_is_told_once_at_the_end():
    """B76: cut by max_tokens in the middle of a character."""
    text = output("byte level")
    assert run(text, [ids_of("byte level", "a", "Ã")]) == ("a\ufffd", 2, None)
    assert text.finish().text == ""


def test_a_stop_string_of_byte_tokens_stops_at_its_last_byte():
    """B70: Llama 2 spells a line feed `<0x0A>`; the run is not certain, the stop is."""
    text = output("llama", stop=["\n"])
    assert run(text, [ids_of("llama", "▁the", "<0x0A>", "▁house")]) == ("the", 2, "\n")
    text = output("llama", stop=["中"])
    group = ids_of("llama", "▁the", "<0xE4>", "<0xB8>", "<0xAD>", "<0xFF>")
    assert run(text, [group]) == ("the", 4, "中")


def test_a_stop_string_of_byte_tokens_keeps_the_spaces_that_the_text_keeps():
    """B80: the first space is dropped, the second, equal one is part of the stop string."""
    text = output("two spaces", stop=["a "])
    group = ids_of("two spaces", "<0x20>", "a", "<0x20>", "<0x20>", "b")
    assert run(text, [group]) == ("", 3, "a ")


def test_offsets_of_byte_tokens_point_into_their_run():
    """B78 B97: the token that makes a character whole owns it, also before the run is told."""
    text = output("llama")
    group = ids_of("llama", "▁a", "<0xC3>", "<0xA9>", "<0x21>", "▁b")
    told, *_ = run(text, [group])
    assert (told, text.offsets) == ("aé! b", [0, 1, 1, 2, 3])
    assert text.token_texts(told) == ["a", "", "é", "!", " b"]


def test_offsets_never_fall_over_characters_in_several_tokens():
    """B78: 'A', a CJK character, half a character, then ASCII twice."""
    text = output("byte level")
    group = ids_of("byte level", "A", "ä", "¸", "Ń", "Ã", "a", "b")
    told, *_ = run(text, [group])
    assert told == "A中\ufffdab"
    assert text.offsets == [0, 1, 1, 1, 2, 2, 4]


def test_no_stop_string_ends_in_the_text_of_the_first_min_tokens():
    """As in vLLM: ' a' is passed over twice, and one that ends later counts, wherever it began."""
    group = ids_of("metaspace, never", "▁a", "▁a", "▁the", "▁a")
    text = output("metaspace, never", stop=[" a"], min_tokens=2)
    assert run(text, [group]) == (" a a the", 4, " a")
    text = output("metaspace, never", stop=["a the"], min_tokens=2)
    assert run(text, [group]) == (" a ", 3, "a the")
    text = output("metaspace, never", stop=["a the"], min_tokens=3)
    assert run(text, [group]) == (" a a the a", 4, None)


def test_min_tokens_holds_in_a_run_of_byte_tokens_too():
    """The first line feed came too early, the second ends the output."""
    group = ids_of("llama", "▁a", "<0x0A>", "<0x21>", "<0x0A>", "<0x21>")
    text = output("llama", stop=["\n"], min_tokens=2)
    assert run(text, [group]) == ("a\n!", 4, "\n")


@pytest.mark.parametrize("kind", built.LATE)
def test_a_decoder_that_tells_late_stops_late_but_loses_and_leaks_nothing(kind: str):
    """B69 B71: ids and text end together, one token after the stop string was whole."""
    house = "house</w>" if kind == "end of word" else "▁house"
    red = ["red</w>"] if kind == "end of word" else ["▁red", "<0x0A>"]
    stop = "red" if kind == "end of word" else "\n"
    text = output(kind, stop=[stop])
    told, kept, stopped = run(text, [ids_of(kind, house, *red, house, house)])
    assert (kept, stopped) == (len(red) + 2, stop)
    assert told == ("house " if kind == "end of word" else "house red")


def test_a_stop_string_that_is_certain_only_at_the_end_is_cut_all_the_same():
    """B69: a mark for broken bytes that end the output."""
    text = output("byte level", stop=["\ufffd"])
    assert text.take(ids_of("byte level", "a", "Ã")) == TextUpdate("a", None, 2)
    assert text.finish() == TextUpdate("", "\ufffd", 0)


def expected(
    tokenizer: Any, ids: list[int], stops: list[str], include: bool, min_tokens: int
) -> tuple[str, int, str | None]:
    """The output, by decoding everything after every token and searching all of it."""
    early = decode(tokenizer, ids[:min_tokens]) if min_tokens else ""
    for count in range(min_tokens + 1, len(ids) + 1):
        text = decode(tokenizer, ids[:count])
        settled = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(early, text, strict=False))
        )
        found = [
            (start, len(stop), stop)
            for stop in stops
            for start in range(len(text))
            if text.startswith(stop, start) and start + len(stop) > settled
        ]
        if found:
            start, length, stop = min(found)
            return text[: start + length * include], count, stop
    return decode(tokenizer, ids), len(ids), None


@pytest.mark.parametrize("kind", KINDS)
def test_random_outputs_end_where_a_search_of_every_full_decode_ends(kind: str):
    """B50 B52 B53 B69 B70 B71 B73 B74 B97: stop strings are cut out of the very text they stop."""
    tokenizer, vocabulary = vocabulary_of(kind)
    rng = random.Random(kind)
    num_stopped = 0
    for _ in range(400):
        pool = [rng.randrange(len(tokenizer)) for _ in range(rng.choice((3, 6, 12)))]
        ids = rng.choices(pool, k=rng.randint(1, 25))
        full = decode(tokenizer, rng.choices(ids, k=8)) + decode(tokenizer, ids)
        starts = [rng.randrange(len(full)) for _ in range(rng.randint(1, 3))] if full else []
        stops = [full[at : at + rng.randint(1, 5)] for at in starts]
        stops = [stop for stop in stops if "\ufffd" not in stop]
        include, min_tokens = rng.random() < 0.5, rng.choice((0, 0, 1, 5))
        text = OutputText(
            vocabulary, stop=stops, include_stop_str_in_output=include, min_tokens=min_tokens
        )
        cuts = sorted(rng.choices(range(len(ids)), k=5))
        groups = [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
        answer = run(text, groups)
        num_stopped += answer[2] is not None
        assert answer == expected(tokenizer, ids, stops, include, min_tokens), (ids, stops)
    assert 40 < num_stopped < 400
