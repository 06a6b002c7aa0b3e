"""Incremental detokenization: text that grows as ids arrive, and never takes anything back."""

from typing import Protocol

#: What a decoder prints for bytes that are not (yet) a character.
REPLACEMENT = "\ufffd"


class Decoder(Protocol):
    """The one method needed of a tokenizer (transformers' `PreTrainedTokenizerBase` has it)."""

    def decode(
        self,
        token_ids: list[int],
        *,
        skip_special_tokens: bool,
        clean_up_tokenization_spaces: bool,
    ) -> str:
        """Text of ids."""
        ...


class IncrementalDetokenizer:
    """Turns ids into pieces of text whose concatenation is the text of all ids.

    One token is not one piece of text: the bytes of a character may be spread over several
    tokens, and some tokenizers drop a space at the start of whatever they decode. So a window of
    ids is decoded twice, without and with the new ids, and the difference is the new piece:

        ids      ... | already told, as context | new |
                     ^ begin                    ^ told ^ end

    A piece that ends in the replacement mark may be half a character and is held back.

    Args:
        tokenizer: decodes.
        skip_special_tokens: leave special tokens out.
    """

    def __init__(self, tokenizer: Decoder, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._ids: list[int] = []
        self._begin = 0
        self._told = 0

    def feed(self, token_ids: list[int]) -> str:
        """Takes in new ids; returns the text that is certain by now, possibly empty."""
        self._ids.extend(token_ids)
        return self._piece(final=False)

    def flush(self) -> str:
        """Returns what was held back; broken bytes come out as replacement marks."""
        return self._piece(final=True)

    def _piece(self, *, final: bool) -> str:
        before = self._decode(self._ids[self._begin : self._told])
        after = self._decode(self._ids[self._begin :])
        if len(after) <= len(before) or (after.endswith(REPLACEMENT) and not final):
            return ""
        self._begin, self._told = self._told, len(self._ids)
        return after[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(
            ids,
            skip_special_tokens=self._skip_special_tokens,
            clean_up_tokenization_spaces=False,
        )
