"""What a tokenizer's decoder is made of, read once."""

import json
from functools import cached_property
from typing import Any, Protocol

from minillm_serve.text.bound import TokenBound, read_bound
from minillm_serve.text.chain import Chain, Piece, Spec, build_chain, token_bytes
from minillm_serve.text.windowed import Decoder, WindowedDecoding

_NUM_PROBES = 64


class TokenStream(Protocol):
    """Ids in, text out."""

    def step(self, token_id: int) -> Piece:
        """Takes in an id."""
        ...

    def finish(self) -> str:
        """Returns what was kept."""
        ...


class Vocabulary:
    """A tokenizer, as far as turning ids into text needs it. Build one an engine, not a request.

    Args:
        tokenizer: transformers' tokenizer, or anything else that decodes.

    Attributes:
        understood: whether its decoder is streamed token by token, exactly. Otherwise (a decoder
            written in Python, or with steps not known here) windows of ids are decoded.
    """

    def __init__(self, tokenizer: Decoder) -> None:
        self._tokenizer = tokenizer
        self._backend = _rust_backend(tokenizer)
        self._special: frozenset[str] = frozenset()
        self._spec: Spec | None = None
        self.understood = self._backend is not None and self._read()

    def stream(self, *, skip_special_tokens: bool) -> TokenStream:
        """A fresh stream of one output."""
        chain = build_chain(self._spec) if self.understood else None
        if chain is None:
            return WindowedDecoding(self._tokenizer, skip_special_tokens=skip_special_tokens)
        return _ExactDecoding(self, chain, skip_special_tokens=skip_special_tokens)

    def token(self, token_id: int, *, skip_special_tokens: bool) -> str | None:
        """What the decoder gets for an id; None for nothing at all.

        As in the library: ids outside the vocabulary are left out, and so are special tokens, which
        it knows by their text.
        """
        token: str | None = self._backend.id_to_token(token_id)
        return None if skip_special_tokens and token in self._special else token

    def own_bytes(self, token_id: int) -> bytes:
        """The bytes that an id stands for by itself; they may be no whole character.

        Nothing for an id outside the vocabulary.
        """
        token: str | None = self._backend.id_to_token(token_id) if self.understood else None
        own = token_bytes(self._spec, token) if token is not None else None
        if own is not None:
            return own
        return self._tokenizer.decode(
            [token_id], skip_special_tokens=False, clean_up_tokenization_spaces=False
        ).encode()

    def least_tokens(self, text: str) -> int:
        """Tokens that a text comes to at least, told far sooner than it is cut into them.

        0 if nobody knows.
        """
        return self._bound.least(text) if self._bound is not None else 0

    @cached_property
    def _bound(self) -> TokenBound | None:
        return read_bound(self._backend) if self.understood else None

    def _read(self) -> bool:
        decoder = self._backend.decoder
        self._spec = None if decoder is None else json.loads(decoder.__getstate__())
        added = self._backend.get_added_tokens_decoder()
        self._special = frozenset(token.content for token in added.values() if token.special)
        # Another version of the library may mean something else by the same description. So some
        # ids are decoded both ways: all added ones, and a few from all over the vocabulary.
        size = self._backend.get_vocab_size()
        probes = [*added, *range(0, size, max(1, size // _NUM_PROBES))]
        return all(self._agrees(probes, skip) for skip in (False, True))

    def _agrees(self, ids: list[int], skip_special_tokens: bool) -> bool:
        chain = build_chain(self._spec)
        if chain is None:
            return False
        stream = _ExactDecoding(self, chain, skip_special_tokens=skip_special_tokens)
        text = "".join([stream.step(token_id).certain for token_id in ids]) + stream.finish()
        full = self._tokenizer.decode(
            ids, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )
        return text == full


class _ExactDecoding:
    def __init__(self, vocabulary: Vocabulary, chain: Chain, *, skip_special_tokens: bool) -> None:
        self._vocabulary = vocabulary
        self._chain = chain
        self._skip_special_tokens = skip_special_tokens

    def step(self, token_id: int) -> Piece:
        token = self._vocabulary.token(token_id, skip_special_tokens=self._skip_special_tokens)
        return Piece("", "") if token is None else self._chain.step(token)

    def finish(self) -> str:
        return self._chain.finish()


def _rust_backend(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` whose decoder is all that `decode` runs; None if it is not."""
    from transformers import PreTrainedTokenizerFast  # slow to import, and only engines need it

    plain = (
        isinstance(tokenizer, PreTrainedTokenizerFast)
        and type(tokenizer).decode is PreTrainedTokenizerFast.decode
        and type(tokenizer)._decode is PreTrainedTokenizerFast._decode
    )
    return tokenizer.backend_tokenizer if plain else None
