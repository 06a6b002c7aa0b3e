"""Pieces of text joined are the full decode, for any ids and any tokenizer."""

import random
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from minillm_serve.models.loader import load_tokenizer
from minillm_serve.models.resolve import resolve_model
from minillm_serve.text.detokenizer import IncrementalDetokenizer
from minillm_serve.text.vocabulary import Vocabulary
from tests.text import built
from tests.text.built import decode

TEXTS = [
    "👨\u200d👩\u200d👧\u200d👦 and 🏴\U000e0067\U000e0062\U000e007f 🇨🇭",
    "e\u0301 a\u0308 \u0301alone",
    "Příliš žluťoučký kůň 안녕하세요 你好，世界",
    "שלום עולם \u202bمرحبا\u202c",
    "  two leading spaces,   three ,  and ? at ! the end   ",
    "a real mark \ufffd and \ufffd\ufffd",
    "don't   do n't 's\n\n\t\r\n",
]


@cache
def smollm2() -> Any:
    """The embedded model's tokenizer."""
    return load_tokenizer(resolve_model("smollm2-135m"))


@cache
def tokenizer_of(kind: str) -> PreTrainedTokenizerFast:
    """A built tokenizer."""
    return built.UNDERSTOOD[kind]()


@cache
def vocabulary_of(kind: str) -> Vocabulary:
    """Its vocabulary, read once as an engine does."""
    return Vocabulary(tokenizer_of(kind))


def stream(source: Any, ids: list[int], *, skip: bool, sizes: Any = None) -> list[str]:
    """Feeds ids in groups; returns the pieces."""
    detokenizer = IncrementalDetokenizer(source, skip_special_tokens=skip)
    pieces, start = [], 0
    while start < len(ids):
        size = next(sizes) if sizes else 1
        pieces.append(detokenizer.feed(ids[start : start + size]))
        start += size
    return [*pieces, detokenizer.flush()]


def group_sizes(rng: random.Random) -> Any:
    """Group sizes without end, zero among them."""
    while True:
        yield rng.choice((0, 1, 1, 2, 3, 7))


def check(source: Any, tokenizer: Any, ids: list[int], rng: random.Random) -> None:
    """Joined pieces equal the full decode, with and without special tokens."""
    skip = rng.random() < 0.5
    joined = "".join(stream(source, ids, skip=skip, sizes=group_sizes(rng)))
    assert joined == decode(tokenizer, ids, skip=skip), (ids, skip)


@pytest.mark.model
def test_pieces_join_to_the_full_decode_for_ten_thousand_random_sequences_of_smollm2():
    """B76 B77 B79 B80: half of the ids are bytes of characters, special tokens and spaces."""
    tokenizer = smollm2()
    vocabulary = Vocabulary(tokenizer)
    assert vocabulary.understood
    size = len(tokenizer)
    odd = [i for i in range(size) if "\ufffd" in (text := decode(tokenizer, [i], skip=False))
           or not text.strip()] + tokenizer.all_special_ids * 20  # fmt: skip
    assert len(odd) > 500
    rng = random.Random(0)
    for _ in range(10_000):
        share = rng.choice((0.0, 0.5, 0.9, 1.0))
        ids = [
            rng.choice(odd) if rng.random() < share else rng.randrange(size)
            for _ in range(rng.randint(1, 40))
        ]
        check(vocabulary, tokenizer, ids, rng)


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_real_text_streams_without_a_mark_that_is_not_its_own(text: str):
    """B76 B78 B79: emoji with joiners, combining accents, right to left, runs of spaces."""
    tokenizer = smollm2()
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = stream(tokenizer, ids, skip=True)
    assert "".join(pieces) == text
    assert sum(piece.count("\ufffd") for piece in pieces) == text.count("\ufffd")


@pytest.mark.parametrize("kind", built.UNDERSTOOD)
def test_pieces_join_to_the_full_decode_for_random_sequences_of_every_kind(kind: str):
    """B76 B77 B80: each decoder of the tokenizers library that language models use."""
    tokenizer, vocabulary = tokenizer_of(kind), vocabulary_of(kind)
    assert vocabulary.understood
    size = len(tokenizer)
    rng = random.Random(kind)
    for _ in range(1_000):
        pool = [rng.randrange(size + 3) for _ in range(rng.choice((2, 5, 40)))]  # 3 ids unknown
        check(vocabulary, tokenizer, rng.choices(pool, k=rng.randint(1, 40)), rng)


@pytest.mark.parametrize("kind", built.UNDERSTOOD)
@settings(max_examples=100, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_pieces_join_to_the_full_decode_of_any_ids(kind: str, data: st.DataObject, skip: bool):
    tokenizer = tokenizer_of(kind)
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) + 2), min_size=1, max_size=40))
    joined = "".join(stream(vocabulary_of(kind), ids, skip=skip))
    assert joined == decode(tokenizer, ids, skip=skip)


@settings(max_examples=400, deadline=None)
@given(raw=st.binary(max_size=40))
def test_any_bytes_give_as_many_marks_as_in_the_full_decode(raw: bytes):
    """B76 B77: each byte a token of its own."""
    tokenizer = tokenizer_of("byte level")
    byte_of = {char: code for code, char in enumerate(_chars_by_byte())}
    ids = [tokenizer.convert_tokens_to_ids(_chars_by_byte()[byte]) for byte in raw]
    assert len(byte_of) == 256
    assert "".join(stream(vocabulary_of("byte level"), ids, skip=True)) == raw.decode(
        errors="replace"
    )


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=20))
@pytest.mark.parametrize("kind", ["byte level", "llama"])
def test_whole_characters_never_turn_into_marks(kind: str, text: str):
    """B76: any text, spelled in single bytes."""
    tokenizer = tokenizer_of(kind)
    spell = built.byte_tokens() if kind == "llama" else _chars_by_byte()
    ids = [tokenizer.convert_tokens_to_ids(spell[byte]) for byte in text.encode()]
    joined = "".join(stream(vocabulary_of(kind), ids, skip=True))
    assert joined == (text.removeprefix(" ") if kind == "llama" else text)


def test_a_byte_level_character_comes_with_its_last_byte():
    """B76: half a character is held, a whole one is not."""
    assert _pieces_of_bytes("a😀b".encode()) == ["a", "", "", "", "😀", "b", ""]


def test_broken_bytes_are_told_once_they_are_known_to_be_broken():
    """B76 B77: a broken tail becomes one mark, at the end; a broken byte does not wait for it."""
    assert _pieces_of_bytes(b"\xe2\x82 x\xff\xf0\x9f") == [
        *["", "", "\ufffd ", "x", "\ufffd", "", "", "\ufffd"]
    ]


def test_a_character_is_put_together_around_a_skipped_special_token():
    """B76: the full decode leaves special tokens out before it looks at bytes."""
    tokenizer = tokenizer_of("byte level")
    first, *rest = [tokenizer.convert_tokens_to_ids(_chars_by_byte()[b]) for b in "€".encode()]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert "".join(stream(tokenizer, [first, end, *rest], skip=True)) == "€"
    assert (
        "".join(stream(tokenizer, [first, end, *rest], skip=False))
        == "\ufffd<|im_end|>\ufffd\ufffd"
    )


def test_a_run_of_byte_tokens_is_told_when_it_ends():
    """B77: one broken byte turns the whole run into marks, so no part of it is certain before."""
    tokenizer = tokenizer_of("llama")
    word, *run = tokenizer.convert_tokens_to_ids(["the", "<0xC3>", "<0xA9>", "<0xFF>"])
    assert stream(tokenizer, [*run[:2], word], skip=True) == ["", "", "éthe", ""]
    assert stream(tokenizer, [*run, word], skip=True) == ["", "", "", "\ufffd\ufffd\ufffdthe", ""]
    assert stream(tokenizer, run[:2], skip=True) == ["", "", "é"]


def test_only_the_first_space_of_a_text_is_dropped():
    """B80: special tokens in front, empty pieces and several spaces do not confuse it."""
    tokenizer = tokenizer_of("llama")
    ids = tokenizer.convert_tokens_to_ids(["<s>", "▁", "▁the", "</s>", "▁▁▁", ",", "▁house"])
    assert stream(tokenizer, ids, skip=True) == ["", "", " the", "", "   ", ",", " house", ""]


def test_a_replacement_over_the_borders_of_tokens_holds_what_could_begin_it():
    """B80: the decoder replaces `▁▁a` in the fused text, then each `▁`, then drops two spaces."""
    tokenizer = tokenizer_of("fused first")
    ids = tokenizer.convert_tokens_to_ids(["b", "▁▁", "▁a", "▁", "▁", "a", "▁▁", "b", "▁"])
    pieces = stream(tokenizer, ids, skip=True)
    assert pieces == ["b", "", " _", "", "", "_", "", "  b", "", " "]
    assert "".join(pieces) == decode(tokenizer, ids)


@pytest.mark.parametrize("kind", ["byte level", "llama"])
def test_the_cost_of_a_token_does_not_grow_with_a_run_of_broken_bytes(kind: str):
    """20,000 in a row: with a decode of the whole run for each, this would not come to an end."""
    tokenizer = tokenizer_of(kind)
    spell = built.byte_tokens() if kind == "llama" else _chars_by_byte()
    broken = tokenizer.convert_tokens_to_ids(spell[0xFF])
    pieces = stream(vocabulary_of(kind), [broken] * 20_000, skip=True)
    assert "".join(pieces) == "\ufffd" * 20_000
    assert set(pieces[:-1]) == ({""} if kind == "llama" else {"\ufffd"})


class Counting:
    """A tokenizer of which only `decode` is known; counts the ids that it decodes."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.num_ids = 0

    def decode(self, token_ids: list[int], **options: bool) -> str:
        self.num_ids += len(token_ids)
        return self._tokenizer.decode(token_ids, **options)


@pytest.mark.parametrize("kind", ["byte level", "metaspace, always", "no decoder"])
def test_a_tokenizer_of_which_only_decode_is_known_streams_exactly_too(kind: str):
    """B76 B80: windows of ids, for decoders that change a first token or a broken last one only."""
    tokenizer = tokenizer_of(kind)
    vocabulary = Vocabulary(Counting(tokenizer))
    assert not vocabulary.understood
    rng = random.Random(kind)
    for _ in range(300):
        pool = [rng.randrange(len(tokenizer)) for _ in range(rng.choice((2, 5, 40)))]
        check(vocabulary, tokenizer, rng.choices(pool, k=rng.randint(1, 40)), rng)


def test_windows_stay_small_whatever_comes():
    """Decoded ids for each id taken: a constant, also in a run of broken bytes."""
    tokenizer = tokenizer_of("byte level")
    broken, letter = tokenizer.convert_tokens_to_ids([_chars_by_byte()[0xFF], "a"])
    for ids in ([broken] * 5_000, [letter] * 5_000, ([broken] * 99 + [letter]) * 50):
        counting = Counting(tokenizer)
        assert "".join(stream(counting, ids, skip=True)) == decode(tokenizer, ids)
        assert counting.num_ids < 15 * len(ids)


def test_an_unknown_decoder_is_not_taken_for_a_known_one():
    assert not Vocabulary(built.by_pattern()).understood
    tokenizer = built.by_pattern()
    ids = tokenizer.convert_tokens_to_ids(["▁▁▁", "the", "▁house"])
    assert "".join(stream(tokenizer, ids, skip=True)) == " the house"


def test_a_tokenizer_with_a_decode_of_its_own_is_not_taken_for_a_plain_one():
    class Shouting(PreTrainedTokenizerFast):
        def _decode(self, *args: Any, **kwargs: Any) -> str:
            return super()._decode(*args, **kwargs).upper()

    plain = tokenizer_of("metaspace, never")
    tokenizer = Shouting(tokenizer_object=plain.backend_tokenizer)
    ids = tokenizer.convert_tokens_to_ids(["▁the", "▁house"])
    assert "".join(stream(tokenizer, ids, skip=True)) == " THE HOUSE"


def _chars_by_byte() -> list[str]:
    """The character that stands for each byte, as bytes of UTF-8 and this library spell it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _pieces_of_bytes(raw: bytes) -> list[str]:
    tokenizer = tokenizer_of("byte level")
    ids = [tokenizer.convert_tokens_to_ids(_chars_by_byte()[byte]) for byte in raw]
    return stream(tokenizer, ids, skip=True)
