"""A decoder as a stream: the tokenizer's own description of it, turned into stages in a row."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from minillm_serve.text import stages
from minillm_serve.text.stages import Stage

#: A decoder as the `tokenizers` library writes it in `tokenizer.json`.
Spec = Mapping[str, Any]


class Piece(NamedTuple):
    """What one token did to the text.

    Attributes:
        certain: text that no later token can change, to be appended; may be empty.
        tentative: text that this token adds if no later one changes it: behind all certain text and
            whatever was tentative since then. Only what is certain may be told, but if the output
            ended here, this would be its end.
    """

    certain: str
    tentative: str


class Chain:
    """Stages in a row: tokens in, text out.

    Args:
        steps: in the decoder's order.
    """

    def __init__(self, steps: Sequence[Stage]) -> None:
        self._stages = list(steps)
        self._first: list[Stage] = []
        self._rest = self._stages
        # Tentative text goes through the stages behind the one that keeps it, on copies of them.
        # That is right if those take text in pieces and keep none: Llama's `Strip`, or no stage.
        kinds = [type(step) for step in steps]
        behind = kinds.index(stages.ByteFallback) + 1 if stages.ByteFallback in kinds else 0
        if behind and all(kind is stages.TextStrip for kind in kinds[behind:]):
            self._first, self._rest = self._stages[:behind], self._stages[behind:]
        self._copies: list[Stage] | None = None

    def step(self, token: str) -> Piece:
        """Takes in a token; O(its own length), but for what it makes certain."""
        strings = _through(self._first, [token])
        tentative = self._first[-1].tentative if self._first else ""
        if strings:
            self._copies = None
        certain = "".join(_through(self._rest, strings))
        if not tentative:
            return Piece(certain, "")
        if self._copies is None:
            self._copies = [copy.copy(stage) for stage in self._rest]
        return Piece(certain, "".join(_through(self._copies, [tentative])))

    def finish(self) -> str:
        """Returns what was kept."""
        strings: list[str] = []
        for stage in self._stages:
            strings = _through([stage], strings) + stage.finish()
        return "".join(strings)


def build_chain(spec: Spec | None) -> Chain | None:
    """Builds fresh stages for one stream.

    Args:
        spec: the decoder; None is a tokenizer without one.

    Returns:
        The stages, or None if the decoder has a step, or an order of steps, that is not streamed
        here (CTC, regular expressions, whatever a later library brings).
    """
    if spec is None:
        return Chain([stages.Spaces()])
    steps: list[Stage] = []
    fused = False
    for part in _flat(spec):
        kind = str(part.get("type"))
        if kind != "Fuse":
            make = (_OF_TEXT if fused else _OF_TOKENS).get(kind)
            step = make(part) if make else None
            if step is None:
                return None
            steps.append(step)
        fused = fused or kind in ("Fuse", "ByteLevel")
    return Chain(steps)


def token_bytes(spec: Spec | None, token: str) -> bytes | None:
    """The bytes that a token stands for, if this decoder knows tokens of bytes; else None."""
    for part in _flat(spec or {}):
        read = stages.RAW_BYTES.get(str(part.get("type")))
        raw = read(token) if read is not None else None
        if raw is not None:
            return raw
    return None


def _flat(spec: Spec) -> Iterator[Spec]:
    if spec.get("type") == "Sequence":
        for part in spec["decoders"]:
            yield from _flat(part)
    else:
        yield spec


def _through(steps: list[Stage], strings: list[str]) -> list[str]:
    for step in steps:
        strings = [out for string in strings for out in step.step(string)]
    return strings


def _replace(spec: Spec, make: Callable[[str, str], Stage]) -> Stage | None:
    pattern = spec["pattern"].get("String")  # else "Regex"
    return make(pattern, spec["content"]) if pattern else None


def _strip_text(spec: Spec) -> Stage | None:
    return stages.TextStrip(spec["content"], spec["start"]) if not spec["stop"] else None


def _metaspace(spec: Spec) -> Stage:
    return stages.Metaspace(spec["replacement"], drop_first=spec["prepend_scheme"] != "never")


_OF_TOKENS: Mapping[str, Callable[[Spec], Stage | None]] = {
    "ByteLevel": lambda spec: stages.ByteLevel(),
    "ByteFallback": lambda spec: stages.ByteFallback(),
    "BPEDecoder": lambda spec: stages.BPEDecoder(spec["suffix"]),
    "Metaspace": _metaspace,
    "WordPiece": lambda spec: stages.WordPiece(spec["prefix"], cleanup=spec["cleanup"]),
    "Replace": lambda spec: _replace(spec, stages.Replace),
    "Strip": lambda spec: stages.Strip(spec["content"], spec["start"], spec["stop"]),
}

_OF_TEXT: Mapping[str, Callable[[Spec], Stage | None]] = {
    "Replace": lambda spec: _replace(spec, stages.TextReplace),
    "Strip": _strip_text,
}
