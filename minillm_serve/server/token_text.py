"""What single tokens read like: beside each other in a text, and each by itself."""

from collections import deque
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from minillm_serve.core.logprobs import TokenLogprobs
from minillm_serve.outputs import CompletionDelta
from minillm_serve.text.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class TokenInText:
    """A token in its place.

    Attributes:
        token_id: which.
        text: what it adds to the text; the texts of all, joined, are the whole text.
        offset: where that begins, in code points.
        logprobs: of it and of others in its place; None where nothing comes before it.
    """

    token_id: int
    text: str
    offset: int
    logprobs: TokenLogprobs | None


class OwnText(NamedTuple):
    r"""What a token reads like by itself.

    Attributes:
        text: what is no whole character reads as OpenAI writes it, `bytes:\xf0\x9f`, so that two
            halves are told apart.
        raw: its bytes.
        is_whole: whether these are whole characters.
    """

    text: str
    raw: bytes
    is_whole: bool


def own_text(vocabulary: Vocabulary, token_id: int) -> OwnText:
    """Reads a token by itself."""
    raw = vocabulary.own_bytes(token_id)
    try:
        return OwnText(raw.decode(), raw, True)
    except UnicodeDecodeError:
        return OwnText("bytes:" + "".join(f"\\x{byte:02x}" for byte in raw), raw, False)


class TokensOfAnswer:
    """Cuts an answer's text into what each of its tokens added, as the answer comes.

    A token is given out with its text, or later: text may be held back, since it could become a
    stop string. So whatever was given out is true whatever comes.
    """

    def __init__(self) -> None:
        self._text = ""
        self._waiting: deque[tuple[int, int, TokenLogprobs]] = deque()  # id, offset, logprobs

    def take(self, delta: CompletionDelta) -> list[TokenInText]:
        """The tokens whose text has been told by now; with the last delta, all that are left."""
        self._text += delta.text
        told = len(self._text)
        self._waiting.extend(
            zip(delta.token_ids, delta.text_offsets, delta.logprobs or (), strict=True)
        )
        ready = []
        while self._waiting:
            token_id, offset, logprobs = self._waiting[0]
            end = self._waiting[1][1] if len(self._waiting) > 1 else delta.text_end
            if end > told and delta.finish_reason is None:
                break
            # A stop string has cut off the text of the tokens that made it.
            offset = min(offset, told)
            ready.append(TokenInText(token_id, self._text[offset:end], offset, logprobs))
            self._waiting.popleft()
        return ready


def tokens_of_prompt(
    vocabulary: Vocabulary,
    token_ids: list[int],
    text: str | None,
    logprobs: list[TokenLogprobs | None],
) -> tuple[str, list[TokenInText]]:
    """Cuts a prompt into its tokens.

    Args:
        vocabulary: the model's.
        token_ids: of the prompt.
        text: as it was given; None if ids were given.
        logprobs: one entry an id, or none at all.

    Returns:
        The text, and one entry an id. The text is the one that was given, if the tokens spell it:
        then those that are not part of it, such as a BOS, add nothing. Otherwise it is theirs.
    """
    pieces = _pieces(vocabulary, token_ids)
    offsets, end = [], 0
    for piece in pieces:
        offsets.append(end)
        if text is None or text.startswith(piece, end):
            end += len(piece)
    if text is None or end < len(text):
        text, offsets = "".join(pieces), [0, *accumulate(map(len, pieces[:-1]))]
    ends = [*offsets[1:], len(text)]
    known = logprobs or [None] * len(token_ids)
    rows = zip(token_ids, offsets, ends, known, strict=True)
    return text, [TokenInText(i, text[start:end], start, entry) for i, start, end, entry in rows]


def _pieces(vocabulary: Vocabulary, token_ids: list[int]) -> list[str]:
    """What each token adds to the text of all, special tokens included."""
    stream = vocabulary.stream(skip_special_tokens=False)
    pieces = [stream.step(token_id).certain for token_id in token_ids]
    pieces[-1] += stream.finish()
    return pieces
