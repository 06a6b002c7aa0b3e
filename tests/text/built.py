"""Small tokenizers of every kind, built here, so that each decoder is met without a download."""

from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

#: What makes decoding hard: joiners, accents, right to left, spaces, punctuation, a real U+FFFD.
WORDS = [
    *["a", "b", "the", "house", "red", "green", "1", "!", ".", ",", "'s", "n't", "do", "not", "\n"],
    *["\u200d", "\u0301", "e\u0301", "שלום", "مرحبا", "👨", "👩", "中", "한", "ř", "\ufffd"],
]
SPECIAL = ["<s>", "</s>", "<|im_end|>"]

BYTE_CHARS = sorted(pre_tokenizers.ByteLevel.alphabet())


def byte_level() -> PreTrainedTokenizerFast:
    """GPT-2's kind: all 256 bytes, whole words, and tokens that end within a character."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spell = [split.pre_tokenize_str(word)[0][0] for word in WORDS]
    parts = [text[:-1] for text in spell if len(text) > 1] + [text[1:] for text in spell]
    return _wrap([*BYTE_CHARS, *spell, *["Ġ" + text for text in spell], *parts], byte_level_decoder)


def metaspace(prepend: str) -> Callable[[], PreTrainedTokenizerFast]:
    """SentencePiece's kind; the first token loses its space unless `prepend` is "never"."""
    decoder = decoders.Metaspace(prepend_scheme=prepend)
    return lambda: _wrap(_spaced(), lambda: decoder)


def llama() -> PreTrainedTokenizerFast:
    """Llama 2's kind: byte fallback, and one space dropped at the start of the text."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    return _wrap([*byte_tokens(), *_spaced()], lambda: decoder)


def two_spaces() -> PreTrainedTokenizerFast:
    """Byte fallback with up to two spaces dropped at the start of the text."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    decoder = decoders.Sequence([*steps, decoders.Strip(" ", 2, 0)])
    return _wrap([*byte_tokens(), *_spaced()], lambda: decoder)


def gemma() -> PreTrainedTokenizerFast:
    """Gemma's kind: byte fallback, every space kept."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return _wrap([*byte_tokens(), *_spaced()], lambda: decoders.Sequence(steps))


def fused_first() -> PreTrainedTokenizerFast:
    """A decoder that fuses early and replaces afterwards, over the borders of tokens."""
    steps = [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁▁a", "_")]
    decoder = decoders.Sequence([*steps, decoders.Replace("▁", " "), decoders.Strip(" ", 2, 0)])
    return _wrap([*byte_tokens(), *_spaced()], lambda: decoder)


def stripped() -> PreTrainedTokenizerFast:
    """Byte fallback with stages per token behind it."""
    steps = [decoders.ByteFallback(), decoders.Metaspace(), decoders.Strip("a", 1, 0)]
    return _wrap([*byte_tokens(), *_spaced()], lambda: decoders.Sequence(steps))


def word_piece(*, cleanup: bool) -> Callable[[], PreTrainedTokenizerFast]:
    """BERT's kind."""
    words = [*WORDS, *["##" + word for word in WORDS], "do not", "' "]
    return lambda: _wrap(words, lambda: decoders.WordPiece(cleanup=cleanup))


def end_of_word() -> PreTrainedTokenizerFast:
    """GPT-1's kind: `</w>` ends a word, and the last token of a text has no space behind it."""
    return _wrap([*WORDS, *[word + "</w>" for word in WORDS], "</w>"], decoders.BPEDecoder)


def no_decoder() -> PreTrainedTokenizerFast:
    """A space between tokens."""
    return _wrap(WORDS, lambda: None)


def by_pattern() -> PreTrainedTokenizerFast:
    """A decoder with a regular expression, which is not streamed token by token."""
    decoder = decoders.Sequence([decoders.Replace(Regex("▁+"), " "), decoders.Fuse()])
    return _wrap(_spaced(), lambda: decoder)


UNDERSTOOD: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte level": byte_level,
    "metaspace, always": metaspace("always"),
    "metaspace, first": metaspace("first"),
    "metaspace, never": metaspace("never"),
    "llama": llama,
    "two spaces": two_spaces,
    "gemma": gemma,
    "fused first": fused_first,
    "stripped": stripped,
    "word piece": word_piece(cleanup=False),
    "word piece, cleanup": word_piece(cleanup=True),
    "end of word": end_of_word,
    "no decoder": no_decoder,
}


#: Of these, text may become certain a token late with nothing to tell of it before.
LATE = ("fused first", "stripped", "end of word")


def byte_tokens() -> list[str]:
    """`<0x00>` to `<0xFF>`."""
    return [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level_decoder() -> decoders.ByteLevel:
    """GPT-2's decoder."""
    return decoders.ByteLevel()


def decode(tokenizer: Any, ids: list[int], *, skip: bool = True) -> str:
    """The full decode that a stream has to add up to."""
    return tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)


def _spaced() -> list[str]:
    return ["▁", "▁▁", "▁▁▁", *WORDS, *["▁" + word for word in WORDS]]


def _wrap(words: list[str], decoder: Callable[[], Any]) -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys(words))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=words[0]))
    if (made := decoder()) is not None:
        backend.decoder = made
    backend.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    # Added tokens that are not special are text: with spaces, and beyond the byte alphabet.
    backend.add_tokens(
        [AddedToken(text, normalized=False) for text in ["▁x", " 中 y", "👨\u200d👩"]]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend)
