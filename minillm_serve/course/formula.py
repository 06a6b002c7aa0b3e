"""LaTeX into MathML whose symbols can be pointed at: the text half of a formula-linked experiment.

    formula = Formula(r"\\text{bytes} = 2 \\cdot N \\cdot H_{kv} \\cdot D", {
        "N": Symbol("N", "layers"),
        "H_kv": Symbol("H_{kv}", "KV heads"),
        "D": Symbol("D", "head dimension"),
    })
    formula.mathml({"N": "32", ...})   # <math> with data-sym="N" on the letter N

Everything happens in the kernel, offline; the browser draws MathML by itself.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from latex2mathml.converter import convert

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
COLOURS = 8
"""Symbols take turns at this many colours (`mls-c0` ... in experiment.css)."""


@dataclass(frozen=True)
class Symbol:
    """One symbol of a formula.

    Attributes:
        latex: How the formula writes it: one letter, or one with an index (`H_{kv}`).
        meaning: What it stands for, a few words ("KV heads").
        note: What it governs, shown while it is lit ("fewer of them with GQA").
        control: Name of its control; None if the control has the symbol's own key, or if the
            symbol is computed and has no control.
    """

    latex: str
    meaning: str = ""
    note: str = ""
    control: str | None = None


def _tree(latex: str, display: str = "inline") -> ElementTree.Element:
    """The MathML of `latex`, without its namespace (HTML has none)."""
    text = convert(latex, display=display)
    return ElementTree.fromstring(text.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', ""))


def _key_of(element: ElementTree.Element) -> str:
    """A text equal for equal subtrees, whatever follows them."""
    bare = copy.copy(element)
    bare.tail = None
    return ElementTree.tostring(bare, encoding="unicode")


class Formula:
    """A formula and its symbols.

    Attributes:
        latex: The source.
        symbols: Key -> symbol. A key is a letter followed by letters, digits, `_` or `-`; it
            becomes `data-sym` in the formula and the class `sym-KEY` of the control.
    """

    def __init__(self, latex: str, symbols: Mapping[str, Symbol]) -> None:
        """Parse and tag.

        Raises:
            ValueError: A key is not usable, a symbol is not one letter or group, or it does not
                occur in the formula.
        """
        self.latex, self.symbols = latex, dict(symbols)
        self._patterns = {key: self._pattern(key, symbol) for key, symbol in symbols.items()}
        self._math = _tree(latex, "block")
        self._found: set[str] = set()
        self._tag(self._math)
        if missing := [key for key in symbols if key not in self._found]:
            raise ValueError(f"symbols {missing} do not occur in the formula {latex!r}")

    @staticmethod
    def _pattern(key: str, symbol: Symbol) -> str:
        if not _KEY.fullmatch(key):
            raise ValueError(f"symbol key {key!r} must match {_KEY.pattern}")
        row = _tree(symbol.latex).find("mrow")
        parts = list(row) if row is not None else []
        if len(parts) != 1:
            raise ValueError(
                f"symbol {key!r}: {symbol.latex!r} must be one letter or group; wrap several "
                r"letters as \mathrm{BW} or \text{bytes}"
            )
        return _key_of(parts[0])

    def _tag(self, element: ElementTree.Element) -> None:
        """Tag the symbols below `element`; the largest match wins, so H_kv is not also H."""
        own = _key_of(element)
        for index, (key, pattern) in enumerate(self._patterns.items()):
            if own == pattern:
                element.set("data-sym", key)
                element.set("class", f"mls-sym mls-c{index % COLOURS}")
                if key not in self._found:  # one stop of the Tab key a symbol
                    element.set("tabindex", "0")
                    element.set("role", "button")
                self._found.add(key)
                return
        for child in element:
            self._tag(child)

    def mathml(self, values: Mapping[str, str]) -> str:
        """The formula as `<math>`; each symbol's label says what it means and its value now."""
        math = copy.deepcopy(self._math)
        for element in math.iter():
            if (key := element.get("data-sym")) and element.get("role"):
                element.set("aria-label", self.hint(key, values))
        return ElementTree.tostring(math, encoding="unicode")

    def with_values(self, values: Mapping[str, str], result: str = "") -> str:
        """The formula once more as `<math>`, with values in place of the symbols that have one.

        Args:
            values: Key -> text.
            result: Appended as `= result`.
        """
        math = copy.deepcopy(self._math)
        for element in math.iter():
            key = element.get("data-sym")
            if key is None:
                continue
            for attribute in ("tabindex", "role"):
                element.attrib.pop(attribute, None)
            if key in values:
                for child in list(element):
                    element.remove(child)
                element.tag, element.text = "mtext", values[key]
        row = math.find("mrow")
        if result and row is not None:
            ElementTree.SubElement(row, "mo").text = "="
            ElementTree.SubElement(row, "mtext", {"class": "mls-result"}).text = result
        return ElementTree.tostring(math, encoding="unicode")

    def hint(self, key: str, values: Mapping[str, str]) -> str:
        """What is said while a symbol is lit: `H_kv: KV heads = 8. Fewer of them with GQA`."""
        symbol = self.symbols[key]
        said = f"{key}: {symbol.meaning}" if symbol.meaning else key
        if key in values:
            said += f" = {values[key]}"
        return f"{said}. {symbol.note}" if symbol.note else said
