"""The decoders of the `tokenizers` library, one token at a time.

There a decoder is a chain of steps, each from the list of *all* tokens to a list of strings, which
are joined in the end. A stage here is such a step in a stream: it takes one token, returns the
strings that no later token can change, and keeps the rest. Its docstring says what it has to keep,
because that is the only thing that delays text.

After `Fuse` or `ByteLevel` the list has one string that grows; the stages behind them
(`TextReplace`, `TextStrip`) get it in pieces, cut anywhere.
"""

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

#: What a decoder prints for bytes that are no character.
REPLACEMENT = "\ufffd"

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Stage(ABC):
    """One step of a decoder, fed with one string at a time.

    Attributes:
        tentative: what the last token would add to the text if the output ended with it, as far as
            `step` did not return it. It starts anew whenever `step` returns something.
    """

    tentative: str = ""

    @abstractmethod
    def step(self, token: str) -> list[str]:
        """Takes the next string; returns those that are certain by now."""

    def finish(self) -> list[str]:
        """Returns what was kept: no token follows."""
        return []


class ByteLevel(Stage):
    """GPT-2's bytes: each character of a token stands for one byte.

    Keeps at most the 3 bytes of a character that is not whole yet. Bytes that can be no part of one
    become a mark at once, as many as in the full decode (both follow Unicode's rule of "maximal
    subparts", table 3-8 of its chapter 3).
    """

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, token: str) -> list[str]:
        return [self._utf8.decode(_byte_level(token))]

    def finish(self) -> list[str]:
        return [self._utf8.decode(b"", final=True)]


class ByteFallback(Stage):
    """SentencePiece's bytes: tokens `<0xE2>` for what the vocabulary cannot spell.

    Keeps a whole run of such tokens until another token ends it: the full decode prints a mark for
    *each* byte of a run that has a single broken byte anywhere, so that no character of it is
    certain earlier. The characters that are whole so far are `tentative`.
    """

    def __init__(self) -> None:
        self._run = bytearray()
        self._broken = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")("strict")

    def step(self, token: str) -> list[str]:
        self.tentative = ""
        match = _BYTE_TOKEN.fullmatch(token)
        if match is None:
            return [*self.finish(), token]
        byte = bytes.fromhex(match[1])
        self._run += byte
        if not self._broken:
            try:
                self.tentative = self._utf8.decode(byte)
            except UnicodeDecodeError:
                self._broken = True
        return []

    def finish(self) -> list[str]:
        run = self._run
        self._start_run()
        try:
            return [run.decode()] if run else []
        except UnicodeDecodeError:
            return [REPLACEMENT] * len(run)

    def _start_run(self) -> None:
        self._run = bytearray()
        self._broken = False
        self._utf8.reset()


class BPEDecoder(Stage):
    """The first BPE models: a suffix marks the end of a word. Keeps one token.

    The suffix becomes a space, but nothing in the last token.
    """

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._kept: str | None = None

    def step(self, token: str) -> list[str]:
        before, self._kept = self._kept, token
        return [] if before is None else [before.replace(self._suffix, " ")]

    def finish(self) -> list[str]:
        return [] if self._kept is None else [self._kept.replace(self._suffix, "")]


class Metaspace(Stage):
    """SentencePiece's spaces, written as a mark; the first token may lose them. Keeps nothing."""

    def __init__(self, mark: str, *, drop_first: bool) -> None:
        self._mark = mark
        self._space = "" if drop_first else " "

    def step(self, token: str) -> list[str]:
        space, self._space = self._space, " "
        return [token.replace(self._mark, space)]


class Spaces(Stage):
    """A tokenizer without a decoder: a space between tokens. Keeps nothing."""

    def __init__(self) -> None:
        self._space = ""

    def step(self, token: str) -> list[str]:
        space, self._space = self._space, " "
        return [space + token]


class WordPiece(Stage):
    """BERT's tokens: a space before each but the first, unless it has the prefix. Keeps nothing."""

    #: Per token, in this order; see `cleanup` in the library's decoders/wordpiece.rs.
    CLEANUP = (
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    )

    def __init__(self, prefix: str, *, cleanup: bool) -> None:
        self._prefix = prefix
        self._cleanup = self.CLEANUP if cleanup else ()
        self._first = True

    def step(self, token: str) -> list[str]:
        if self._first:
            self._first = False
        elif token.startswith(self._prefix):
            token = token[len(self._prefix) :]
        else:
            token = f" {token}"
        for dirty, clean in self._cleanup:
            token = token.replace(dirty, clean)
        return [token]


class Replace(Stage):
    """Replaces within each token. Keeps nothing."""

    def __init__(self, pattern: str, content: str) -> None:
        self._pattern = pattern
        self._content = content

    def step(self, token: str) -> list[str]:
        return [token.replace(self._pattern, self._content)]


class Strip(Stage):
    """Cuts up to so many of one character off both ends of each token. Keeps nothing."""

    def __init__(self, content: str, start: int, stop: int) -> None:
        self._content = content
        self._start = start
        self._stop = stop

    def step(self, token: str) -> list[str]:
        num_left = len(token) - len(token.lstrip(self._content))
        num_right = len(token) - len(token.rstrip(self._content))
        return [token[min(num_left, self._start) : len(token) - min(num_right, self._stop)]]


class TextReplace(Replace):
    """Replaces in the fused text. Keeps the longest tail that could begin the pattern."""

    def __init__(self, pattern: str, content: str) -> None:
        super().__init__(pattern, content)
        self._tail = ""

    def step(self, token: str) -> list[str]:
        *before, rest = (self._tail + token).split(self._pattern)
        sizes = range(len(self._pattern) - 1, 0, -1)
        kept = next((size for size in sizes if rest.endswith(self._pattern[:size])), 0)
        self._tail = rest[len(rest) - kept :]
        return [self._content.join([*before, rest[: len(rest) - kept]])]

    def finish(self) -> list[str]:
        return [self._tail]


class TextStrip(Stage):
    """Cuts up to so many of one character off the start of the fused text. Keeps nothing."""

    def __init__(self, content: str, start: int) -> None:
        self._content = content
        self._left = start

    def step(self, token: str) -> list[str]:
        num_cut = min(len(token) - len(token.lstrip(self._content)), self._left)
        if num_cut < len(token):
            self._left = 0  # the text has begun
        else:
            self._left -= num_cut
        return [token[num_cut:]]


def _bytes_of_characters() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 stands for itself, the other bytes for U+0100 onward."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def _byte_level(token: str) -> bytes:
    try:
        return bytes([_BYTE_OF[char] for char in token])
    except KeyError:  # an added token, written as plain text
        return token.encode()


def _byte_fallback(token: str) -> bytes | None:
    match = _BYTE_TOKEN.fullmatch(token)
    return bytes.fromhex(match[1]) if match else None


_BYTE_OF = _bytes_of_characters()

#: Decoders whose tokens may stand for bytes, and which bytes; None for a token that does not.
RAW_BYTES: Mapping[str, Callable[[str], bytes | None]] = {
    "ByteLevel": _byte_level,
    "ByteFallback": _byte_fallback,
}
