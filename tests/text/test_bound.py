"""What the bytes of a text tell of its number of tokens, before it is cut into them."""

import random

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from minillm_serve.text.bound import read_bound

#: As in SmolLM2's vocabulary: bytes 4 and 6 are no tokens.
LETTERS = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - {"Ą", "Ć"})
PIECES = ["a", "aaaa", " a", " ", "\n", "\x04\x06", "é", "中", "👨", "<end>", "<|", "1"]


def byte_level(letters=LETTERS, **options):
    """Byte-level BPE of a few merges and an added token."""
    merges = [("a", "a"), ("aa", "aa"), ("Ġ", "a")]
    tokens = [*letters, *["".join(pair) for pair in merges]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocabulary, merges, **options))
    digits, bytes_of = pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_of])
    made.add_special_tokens([AddedToken("<end>", special=True)])
    return made


@pytest.mark.parametrize("unknown", [None, "a"])
def test_no_text_comes_to_fewer_tokens_than_its_bytes_tell(unknown):
    made, draw = byte_level(unk_token=unknown), random.Random(1)
    bound = read_bound(made)
    for _ in range(200):
        text = "".join(draw.choices(PIECES, k=draw.randint(0, 20)))
        assert bound.least(text) <= len(made.encode(text).ids)
    for text, least in (
        ("<end>" * 30, 30),
        ("a" * 400, 80),
        ("\x04\x06" * 50, 20 if unknown else 0),
    ):
        assert bound.least(text) == least
        assert least <= len(made.encode(text).ids)


def normalized(made):
    made.normalizer = normalizers.Strip()


def without_spaces(made):
    split = pre_tokenizers.Split(Regex(" +"), "removed")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel()])


def of_words(made):
    made.pre_tokenizer = pre_tokenizers.Whitespace()


def uncut(made):
    made.pre_tokenizer = None


def swallowing(made):
    made.add_special_tokens([AddedToken("<mask>", lstrip=True)])


def word_level(made):
    made.model = models.WordLevel({"a": 0}, unk_token="a")


def fused(made):
    made.model = models.BPE({"a": 0}, [], unk_token="a", fuse_unk=True)


@pytest.mark.parametrize(
    "change", [normalized, without_spaces, of_words, uncut, swallowing, word_level, fused]
)
def test_of_tokenizers_that_lose_some_of_a_text_nothing_is_told(change):
    made = byte_level()
    assert read_bound(made) is not None
    change(made)
    assert read_bound(made) is None
