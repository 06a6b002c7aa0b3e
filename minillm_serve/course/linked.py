"""`FormulaExperiment`: an experiment whose formula, controls and drawing light each other.

Pointing at a symbol, or reaching it with the Tab key, lights its control and the parts of the
drawing that it governs; a control lights its symbol and its parts, and a part both of them. Enter
on a symbol goes to its control. The drawing is an SVG, so that its parts are real elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser

from . import controls as control_kit
from .experiment import Draw, Experiment
from .formula import COLOURS, Formula, Symbol
from .frontend import Drawing, Links
from .plots import DPI
from .render import to_svg


class FormulaExperiment(Experiment):
    """An `Experiment` under a live formula.

    Mark the parts of the drawing in `draw` with `plots.mark(artist, "N")`.
    """

    def __init__(
        self,
        draw: Draw,
        controls: Mapping[str, widgets.Widget],
        *,
        formula: str,
        symbols: Mapping[str, Symbol],
        live: Callable[..., Mapping[str, str]] | None = None,
        result: Callable[..., str] | None = None,
        **options: Any,
    ) -> None:
        r"""Build the experiment, link it and draw it once.

        Args:
            draw: As in `Experiment`.
            controls: As in `Experiment`.
            formula: LaTeX; write `\cdot` or `\times` between factors, so that the line with the
                values reads as a product.
            symbols: Key -> symbol. A symbol is tied to the control named by `symbol.control`, or
                to the control with its own key.
            live: Function of the controls' values to {key: text}, for symbols that are computed
                or want another format; the others show their control's value.
            result: Function of the controls' values to the text after the last `=`.
            **options: As in `Experiment`: title, describe, predict, presets, preset_label.

        Raises:
            ValueError: A symbol does not occur in the formula, or names a control that is not
                there.
        """
        self.formula = Formula(formula, symbols)
        self._live, self._result = live, result
        self._control_of = self._tie(symbols, controls)
        super().__init__(draw, controls, **options)

    @staticmethod
    def _tie(
        symbols: Mapping[str, Symbol], controls: Mapping[str, widgets.Widget]
    ) -> dict[str, str]:
        """Give each symbol's control its class; return key -> control's name."""
        ties: dict[str, str] = {}
        for index, (key, symbol) in enumerate(symbols.items()):
            if symbol.control is not None and symbol.control not in controls:
                raise ValueError(
                    f"symbol {key!r} names control {symbol.control!r}, but the controls are "
                    f"{sorted(controls)}"
                )
            name = symbol.control or key
            if name in controls:
                ties[key] = name
                controls[name].add_class(f"sym-{key}").add_class(f"mls-c{index % COLOURS}")
        return ties

    def _make_links(self) -> Links:
        return Links()  # filled by the first redraw

    def _make_picture(self) -> widgets.DOMWidget:
        return Drawing()

    def symbol_values(self) -> dict[str, str]:
        """Key -> text of each symbol's value now."""
        values = {
            key: control_kit.shown_value(self.controls[name])
            for key, name in self._control_of.items()
        }
        return {**values, **(self._live(**self.values()) if self._live else {})}

    def result(self) -> str:
        """The formula's value now, as text; empty if no function was given for it."""
        return self._result(**self.values()) if self._result else ""

    def _refresh_links(self) -> None:
        values = self.symbol_values()
        with self.links.hold_sync():
            self.links.formula = self.formula.mathml(values)
            # Before the learner has committed, the result would give the answer away.
            self.links.live = self.formula.with_values(
                values, self.result() if self.revealed else ""
            )
            self.links.hints = {key: self.formula.hint(key, values) for key in self.formula.symbols}

    def _fill_picture(self, figure: Figure, said: str) -> None:
        with self.picture.hold_sync():
            self.picture.alt = said
            self.picture.width = int(figure.get_figwidth() * DPI)
            self.picture.svg = to_svg(figure)

    def _formula_text(self) -> str:
        result = self.result()
        return f"{self.formula.latex}" + (f" = {result}" if result else "")

    def _header(self) -> list[str]:
        """The formula typeset by matplotlib where it can, else left to the page's own text."""
        result = self.result().replace("%", r"\%")
        typeset = f"${self.formula.latex}" + (
            rf"\;=\;\mathrm{{{_words(result)}}}$" if result else "$"
        )
        try:
            MathTextParser("agg").parse(typeset)
        except ValueError:
            typeset = ""
        source = self._formula_text()
        lines = (typeset if line == source else line for line in super()._header())
        return [line for line in lines if line]


def _words(text: str) -> str:
    """Text for mathtext's upright font, which would drop the spaces."""
    return text.replace(" ", r"\ ")
