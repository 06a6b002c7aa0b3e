"""From what is asked of an answer to a grammar over the tokens of one model."""

import json
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection
from typing import Any

import numpy as np

from minillm_serve.core.errors import RequestRefused
from minillm_serve.core.structured_outputs import StructuredOutputsParams
from minillm_serve.runtime.structured.given_up import GivenUp
from minillm_serve.runtime.structured.json_schema import Unsupported, check_expression, explicit

#: Compiled grammars that are kept for whoever asks for the same, and how many bytes of them.
MOST_KEPT = 64
MOST_BYTES_KEPT = 256 * 2**20
#: What the compiler writes before what went wrong: the time, its own source, and what it checked.
_ORIGIN = re.compile(r"^\[[\d:]+\] \S+:\d+: (?:Check failed: \(.*\) is false: )?")


class Grammar:
    """What a request's structured outputs came to, for one model.

    Attributes:
        compiled: xgrammar's.
        spellable: [W] int32, a bit for each id: those that an answer may have at all. Special
            tokens are not: their text is left out of answers.
        given_up: where it is remembered if it proves too slow.
        is_too_slow: it took too long to find what may come next, and is given up.

    Args:
        asked: what it was compiled from.
    """

    def __init__(
        self,
        compiled: Any,
        spellable: np.ndarray,
        asked: StructuredOutputsParams,
        given_up: GivenUp,
    ) -> None:
        self.compiled = compiled
        self.spellable = spellable
        self.given_up = given_up
        self.is_too_slow = False
        self._asked = asked

    def give_up(self) -> None:
        """Nobody follows it any more, and whoever asks for it is refused."""
        self.is_too_slow = True
        self.given_up.remember(
            self._asked,
            "it is too ambiguous to be followed in time; let no repetition stand within another",
        )

    def matcher(self) -> Any:
        """Follows one answer from its beginning."""
        from xgrammar import GrammarMatcher

        return GrammarMatcher(self.compiled)


class GrammarCompiler:
    """Compiles structured outputs for one model. Several threads may ask it.

    Masks of what may come are made when they are first needed: a grammar that has too many states
    to look at beforehand is compiled as quickly as any other.

    Args:
        tokenizer: transformers' tokenizer; None if there is none.
        vocab_size: ids that the model gives logits for (V).
        eos_token_ids: ids that end an answer.

    Attributes:
        given_up: what proved too slow. (Apart from what is kept, which others soon push out.)
    """

    def __init__(self, tokenizer: Any, vocab_size: int, eos_token_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = sorted(eos_token_ids)
        self._compiler: Any = None
        self._spellable = np.zeros(0, np.int32)
        self._kept: OrderedDict[StructuredOutputsParams, Grammar] = OrderedDict()
        self._lock = threading.Lock()  # around what is kept
        self._preparing = threading.Lock()
        # One for each shape that is compiled: one that takes for ever holds nobody else's.
        self._turns: weakref.WeakValueDictionary[StructuredOutputsParams, threading.Lock] = (
            weakref.WeakValueDictionary()
        )
        self.given_up = GivenUp()

    def find(self, asked: StructuredOutputsParams | None) -> Grammar | None:
        """The grammar, if nothing is asked for or it was compiled before; never takes long.

        Raises:
            RequestRefused: it proved too slow.
        """
        if asked is None:
            return None
        self.given_up.check(asked)
        with self._lock:
            grammar = self._kept.get(asked)
            if grammar is not None:
                self._kept.move_to_end(asked)
        return grammar

    def compile(self, asked: StructuredOutputsParams | None) -> Grammar | None:
        """The grammar for what is asked; None if nothing is.

        Raises:
            RequestRefused: it cannot be compiled, for this model or at all; xgrammar is missing;
                it proved too slow, or others did that still run.
        """
        if asked is None or (known := self.find(asked)) is not None:
            return None if asked is None else known
        with self._lock:
            turn = self._turns.setdefault(asked, threading.Lock())
        with turn:
            if (known := self.find(asked)) is None:
                self.given_up.check_room(asked)
                known = self._compile(asked)
                self._keep(asked, known)
        return known

    def _compile(self, asked: StructuredOutputsParams) -> Grammar:
        self.prepare()
        try:
            compiled = self._compile_kind(asked)
            grammar = Grammar(compiled, self._spellable, asked, self.given_up)
            matcher = grammar.matcher()
            bits = np.zeros((1, len(self._spellable)), np.int32)
            matcher.fill_next_token_bitmask(bits)
        except Unsupported as error:
            raise RequestRefused(f"structured_outputs.{asked.kind}: {error}") from None
        except Exception as error:  # the compiler's are of many kinds
            what = _ORIGIN.sub("", str(error)).strip()[:300]
            raise RequestRefused(f"structured_outputs.{asked.kind}: {what}") from None
        if not (bits[0] & self._spellable).any():
            raise RequestRefused(
                f"structured_outputs.{asked.kind}: no token of this model can begin such an answer"
            )
        return grammar

    def _compile_kind(self, asked: StructuredOutputsParams) -> Any:
        compiler, spaced = self._compiler, not asked.disable_any_whitespace
        match asked.kind:
            case "json":
                assert isinstance(asked.json, str)
                schema = json.dumps(explicit(json.loads(asked.json)))
                return compiler.compile_json_schema(schema, any_whitespace=spaced)
            case "json_object":
                return compiler.compile_json_schema('{"type": "object"}', any_whitespace=spaced)
            case "regex":
                assert asked.regex is not None
                check_expression(asked.regex)
                return compiler.compile_regex(asked.regex)
            case "choice":
                assert asked.choice is not None
                either = " | ".join(map(_quoted, asked.choice))
                return compiler.compile_grammar(f"root ::= {either}")
            case _:
                return compiler.compile_grammar(asked.grammar)

    def _keep(self, asked: StructuredOutputsParams, grammar: Grammar) -> None:
        with self._lock:
            self._kept[asked] = grammar
            # They grow while they are used, so their sizes are not known once and for all.
            size = sum(kept.compiled.memory_size_bytes for kept in self._kept.values())
            while len(self._kept) > MOST_KEPT or (size > MOST_BYTES_KEPT and len(self._kept) > 1):
                _, oldest = self._kept.popitem(last=False)
                size -= oldest.compiled.memory_size_bytes

    def prepare(self) -> None:
        """Reads the vocabulary, once.

        Raises:
            RequestRefused: it cannot be read, or xgrammar is missing.
        """
        with self._preparing:
            if self._compiler is None:
                self._prepare()

    def _prepare(self) -> None:
        try:
            import xgrammar
        except ModuleNotFoundError:
            raise RequestRefused(
                "structured_outputs need the package xgrammar, which is not installed: "
                "pip install xgrammar"
            ) from None
        name = type(self._tokenizer).__name__
        if not self._eos_token_ids:
            raise RequestRefused("structured_outputs: this model has no EOS token to end them")
        try:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self._tokenizer, vocab_size=self._vocab_size, stop_token_ids=self._eos_token_ids
            )
        except Exception:
            info = None
        if info is None or info.vocab_type is xgrammar.VocabType.RAW:
            raise RequestRefused(
                f"structured_outputs: what the tokens of {name} stand for is not known; byte-level "
                "and byte-fallback tokenizers are supported"
            )
        self._spellable = self._read_spellable()
        self._compiler = xgrammar.GrammarCompiler(
            info, max_threads=1, cache_enabled=False, enable_dynamic_compilation=True
        )

    def _read_spellable(self) -> np.ndarray:
        tokenizer = self._tokenizer
        added = tokenizer.added_tokens_decoder.items()
        special = {*tokenizer.all_special_ids, *(i for i, token in added if token.special)}
        known = set(tokenizer.get_vocab().values())
        ids = (known - special) | set(self._eos_token_ids)
        return pack_ids(ids, self._vocab_size)


def pack_ids(ids: Collection[int], vocab_size: int) -> np.ndarray:
    """A bit for each id of a vocabulary, [ceil(V / 32)] int32, the lowest id in the lowest bit."""
    flags = np.zeros(-(-vocab_size // 32) * 32, np.bool_)
    flags[[i for i in ids if i < vocab_size]] = True
    return np.packbits(flags, bitorder="little").view(np.int32)


def _quoted(text: str) -> str:
    """A text as a literal of the grammars' language."""
    plain = "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08x}" for c in text)
    return f'"{plain}"'
