"""How many tokens a text comes to at least: its bytes tell, long before it is cut into them."""

import json
from dataclasses import dataclass
from typing import Any

from minillm_serve.text.stages import RAW_BYTES

#: What may stand before byte-level BPE: it cuts the text, and keeps all of it.
_CUTS = frozenset({"ByteLevel", "Digits", "Split"})


@dataclass(frozen=True, slots=True)
class TokenBound:
    """Of byte-level BPE, where the bytes of the tokens, joined, are those of the text.

    Attributes:
        longest: bytes of UTF-8 that one token stands for at most.
        lost: bytes that no token stands for; they are left out.
    """

    longest: int
    lost: bytes

    def least(self, text: str) -> int:
        """Tokens that a text comes to at least, special ones that are added not counted."""
        return -(-len(text.encode().translate(None, self.lost)) // self.longest)


def read_bound(backend: Any) -> TokenBound | None:
    """What a tokenizer's own description tells of it.

    Args:
        backend: a `tokenizers.Tokenizer`.

    Returns:
        None if nobody knows: others change the text first, drop spaces, or make one token of an
        unknown word, however long.
    """
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel

    model, added = backend.model, backend.get_added_tokens_decoder().values()
    kinds = _kinds(backend.pre_tokenizer)
    if not isinstance(model, BPE) or model.fuse_unk or backend.normalizer is not None:
        return None
    if "ByteLevel" not in kinds or not kinds <= _CUTS:
        return None
    if any(token.lstrip or token.rstrip for token in added):
        return None  # one that swallows the spaces beside it
    known = backend.get_vocab(with_added_tokens=False)
    lost = [letter for letter in ByteLevel.alphabet() if letter not in known]
    if model.unk_token is not None:
        lost = []  # that one stands for each of them
    of_added = (len(token.content.encode()) for token in added)
    # (Each letter of the others stands for one byte.)
    longest = max([1, *map(len, known), *of_added])
    return TokenBound(longest, b"".join(RAW_BYTES["ByteLevel"](letter) or b"" for letter in lost))


def _kinds(step: Any) -> set[str]:
    """The parts of a pre-tokenizer; "Removed" is one that drops what it cuts out."""
    found, parts = set(), [] if step is None else [json.loads(step.__getstate__())]
    while parts:
        part = parts.pop()
        parts += part.get("pretokenizers", [])
        if part["type"] != "Sequence":
            found.add("Removed" if part.get("behavior") == "Removed" else part["type"])
    return found
