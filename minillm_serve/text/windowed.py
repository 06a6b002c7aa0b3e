"""Streaming with nothing but a tokenizer's `decode`, for tokenizers that are not understood."""

from typing import Protocol

from minillm_serve.text.chain import Piece
from minillm_serve.text.stages import REPLACEMENT


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


class WindowedDecoding:
    """Decodes a window of ids without and with the new ones; the difference is the new piece.

        ids      ... | already told, as context | new |
                     ^ 0                        ^ told

    The context is there because some tokenizers drop a space at the start of whatever they decode.
    It has some text of its own (skipped special tokens alone would be none), and text that ends in
    a replacement mark may be half a character and is held back.

    Exact if the decoder changes no more than the first token of what it decodes and a last
    character that is not whole, so for byte-level tokenizers; for others nobody can tell from
    outside (an unknown decoder could rewrite its first word when it sees the last). The
    tokenizers that are met in practice go through `Chain`, which knows.

    Cost: while nothing can be told, the window is decoded again only after it has grown by an
    eighth, so that a run of broken bytes costs each token a constant, not a decode of the run. When
    the run ends, text comes again with a delay of at most an eighth of the window.

    Args:
        tokenizer: decodes.
        skip_special_tokens: leave special tokens out.
    """

    def __init__(self, tokenizer: Decoder, *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._window: list[int] = []
        self._told = 0
        self._context = ""
        self._retry_at = 1

    def step(self, token_id: int) -> Piece:
        """Takes in an id."""
        self._window.append(token_id)
        if len(self._window) < self._retry_at:
            return Piece("", "")
        text = self._decode(self._window)
        settled = len(text) > len(self._context) and not text.endswith(REPLACEMENT)
        if not settled or not text.startswith(self._context):
            self._retry_at = len(self._window) * 9 // 8 + 1
            return Piece("", "")
        piece = text[len(self._context) :]
        self._move(text)
        return Piece(piece, "")

    def finish(self) -> str:
        """Returns what was held back; broken bytes come out as replacement marks."""
        return self._decode(self._window)[len(self._context) :]

    def _move(self, text: str) -> None:
        context = self._decode(self._window[self._told :])
        if context:
            del self._window[: self._told]
        self._context = context or text
        self._told = len(self._window)
        self._retry_at = self._told + 1

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(
            ids,
            skip_special_tokens=self._skip_special_tokens,
            clean_up_tokenization_spaces=False,
        )
