"""`Experiment`: controls, and a picture that a plain function draws from their values.

    def draw(batch: int) -> Figure: ...

    Experiment(draw, {"batch": controls.integer("batch size B", 1, 64, 8)},
               title="One knob", describe=lambda batch: f"{2783 * batch / 64:.0f} tokens/s")

In a live notebook it shows sliders; where no kernel runs, the committed picture with the settings
that it was drawn for. Its text is the same at each run, so notebooks can be compared.
"""

from __future__ import annotations

import html
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

from . import controls as control_kit
from .frontend import Links, view_data
from .plots import DPI, style
from .predict import Predict, PredictPanel
from .render import problem_html, to_png, with_header

Draw = Callable[..., Figure]
ERROR_MARK = "EXPERIMENT FAILED"
"""Begins the text of an experiment whose drawing raised; the notebook checker looks for it."""

CUSTOM = "(my own)"


class Experiment(widgets.VBox):
    """Controls on top, a picture below, and optionally a question before it.

    The front end sends a control's next value only after the kernel has finished with the last
    one, and only the newest: redrawing at once needs no timer and settles at the final value.

    Attributes:
        controls: Name -> widget.
        error: The exception of the last redraw, or None.
        prediction: What the learner committed to, or None.
        revealed: Whether the picture is shown.
        figures_drawn: How many times `draw` was called.
    """

    def __init__(
        self,
        draw: Draw,
        controls: Mapping[str, widgets.Widget],
        *,
        title: str = "",
        describe: Callable[..., str] | None = None,
        predict: Predict | None = None,
        presets: Mapping[str, Mapping[str, Any]] | None = None,
        preset_label: str = "preset",
    ) -> None:
        """Build the experiment and draw it once.

        Args:
            draw: Pure function of the controls' values (by name) to a figure. If it has a
                parameter `prediction` or `preset`, it is given that too.
            controls: Name -> ipywidget with a `value`.
            title: Shown above.
            describe: Function of the same values to one or two sentences: the caption, the
                alternative text, and what is shown where there are no pictures.
            predict: Question asked before the picture is shown.
            presets: Name -> values for some of the controls; adds a list to choose from.
            preset_label: What the presets are.

        Raises:
            ValueError: A preset names a control that does not exist, or there are no controls.
        """
        if not controls:
            raise ValueError("an Experiment needs at least one control: a plot needs none of this")
        self._draw, self._describe, self.title = draw, describe, title
        self.controls = dict(controls)
        self.predict = predict
        self.revealed = predict is None
        self.prediction: float | str | None = None
        self.error: Exception | None = None
        self.figures_drawn = 0
        self._quiet = False
        self._start = self.values()
        self._presets = {name: dict(values) for name, values in (presets or {}).items()}
        self._check_presets()
        self._build(preset_label)
        self.redraw()

    # -- building -------------------------------------------------------------------------------

    def _check_presets(self) -> None:
        for preset, values in self._presets.items():
            if unknown := set(values) - set(self.controls):
                raise ValueError(
                    f"preset {preset!r} sets {sorted(unknown)}, but the controls are "
                    f"{sorted(self.controls)}"
                )

    def _build(self, preset_label: str) -> None:
        """Make the parts and lay them out."""
        self.links = self._make_links()
        self.picture = self._make_picture()
        self.caption = widgets.HTML()
        self.caption.add_class("mls-caption")
        self.problem = widgets.HTML()
        self.reset_button = widgets.Button(
            description="Reset", icon="undo", layout={"width": "auto"}, tooltip="As it was"
        )
        self.reset_button.on_click(lambda _: self.reset())
        self.panel = PredictPanel(self.predict, self._reveal) if self.predict else None
        self.preset = self._make_preset(preset_label) if self._presets else None
        for control in self.controls.values():
            control.add_class("mls-control")
            control.observe(self._control_moved, names="value")
        knobs = [*([self.preset] if self.preset else []), *self.controls.values()]
        row = widgets.HBox([*knobs, self.reset_button], layout={"align_items": "center"})
        row.add_class("mls-controls")
        heading = [widgets.HTML(f"<h4>{html.escape(self.title)}</h4>")] if self.title else []
        panel = [self.panel] if self.panel else []
        super().__init__(
            [*heading, self.links, row, *panel, self.problem, self.picture, self.caption]
        )
        self.add_class("mls-experiment")

    def _make_links(self) -> Links:
        return Links()

    def _make_picture(self) -> widgets.DOMWidget:
        picture = widgets.Image(format="png", layout={"width": "max-content", "max_width": "100%"})
        picture.add_class("mls-picture")
        return picture

    def _make_preset(self, label: str) -> widgets.Dropdown:
        names = [*self._presets, CUSTOM]
        preset = control_kit.choice(label, names, self._matching_preset())
        preset.add_class("mls-control")
        preset.observe(self._preset_chosen, names="value")
        return preset

    # -- values ---------------------------------------------------------------------------------

    def values(self) -> dict[str, Any]:
        """The controls' values by name."""
        return {name: control.value for name, control in self.controls.items()}

    def set(self, **values: Any) -> None:
        """Set controls and redraw once.

        Raises:
            KeyError: There is no such control.
        """
        unknown = set(values) - set(self.controls)
        if unknown:
            raise KeyError(f"no control {sorted(unknown)}: there are {sorted(self.controls)}")
        self._quiet = True
        try:
            for name, value in values.items():
                self.controls[name].value = value
        finally:
            self._quiet = False
        self._sync_preset()
        self.redraw()

    def reset(self) -> None:
        """Put every control back where it started."""
        self.set(**self._start)

    def _matching_preset(self) -> str:
        """The first preset that the controls stand at, else `CUSTOM`."""
        now = self.values()
        fitting = (name for name, want in self._presets.items() if want.items() <= now.items())
        return next(fitting, CUSTOM)

    def _sync_preset(self) -> None:
        if self.preset is not None:
            self._quiet = True
            self.preset.value = self._matching_preset()
            self._quiet = False

    def _preset_chosen(self, change: Any) -> None:
        if not self._quiet and change["new"] != CUSTOM:
            self.set(**self._presets[change["new"]])

    def _control_moved(self, _: Any) -> None:
        if not self._quiet:
            self._sync_preset()
            self.redraw()

    # -- drawing --------------------------------------------------------------------------------

    def _draw_now(self) -> Figure:
        """Call `draw` in the course's style, and check what it returns."""
        accepted = inspect.signature(self._draw).parameters
        extras = {
            "prediction": self.prediction,
            "preset": self.preset.value if self.preset is not None else None,
        }
        given = {name: value for name, value in extras.items() if name in accepted}
        self.figures_drawn += 1
        with style():
            figure = self._draw(**self.values(), **given)
        if not isinstance(figure, Figure):
            raise TypeError(
                f"draw returned {type(figure).__name__}, not a matplotlib Figure: end it with "
                "`return fig`"
            )
        if pyplot := sys.modules.get("matplotlib.pyplot"):
            pyplot.close(figure)  # else pyplot keeps every figure alive
        return figure

    def describe(self) -> str:
        """One or two sentences on what the picture shows at the present values."""
        if self._describe is not None:
            return self._describe(**self.values())
        return f"{self.title or 'Experiment'}: {self._settings()}"

    def _settings(self) -> str:
        parts = [
            f"{control.description or name} = {control_kit.shown_value(control)}"
            for name, control in self.controls.items()
        ]
        return " · ".join(parts)

    def redraw(self) -> None:
        """Draw again; an exception is shown in place of the picture and kept in `error`."""
        try:
            figure, said = self._draw_now(), self.describe()
            self._refresh_links()
            self.error = None
            self.problem.value = ""
            self._present(figure, said)
        except Exception as error:
            self.error = error
            self._present_error(error)

    def _refresh_links(self) -> None:
        """Bring the live values up to date; plain experiments have none."""

    def _present(self, figure: Figure, said: str) -> None:
        """Show the picture and caption, or hide them until the learner has committed."""
        if self.revealed:
            self._fill_picture(figure, said)
            self.caption.value = html.escape(said)
        self.picture.layout.display = "" if self.revealed else "none"

    def _fill_picture(self, figure: Figure, said: str) -> None:
        self.picture.value = to_png(figure)  # `said` stands below it: an Image has no alt text

    def _present_error(self, error: Exception) -> None:
        self.picture.layout.display = "none"
        self.caption.value = ""
        self.problem.value = problem_html(error)

    def _reveal(self, prediction: float | str | None) -> str:
        """Take the learner's prediction, show the picture, and return the verdict."""
        assert self.predict is not None  # only the panel calls this, and it has the question
        self.prediction, self.revealed = prediction, True
        self.redraw()
        try:
            return self.predict.verdict(prediction, self.values())
        except Exception as error:
            self.error = error
            return html.escape(f"{type(error).__name__}: {error}")

    # -- views without a kernel -----------------------------------------------------------------

    def __repr__(self) -> str:
        """The same text at each run: question, answer, settings and finding."""
        if self.error is not None:
            return f"{ERROR_MARK}: {type(self.error).__name__}: {self.error}"
        lines = [self.title, self._formula_text()]
        if self.predict is not None:
            lines.append(self.predict.as_text(self.values()))
        lines += [self._settings(), self.describe()]
        return "\n".join(dict.fromkeys(line for line in lines if line))

    def _formula_text(self) -> str:
        return ""

    def _header(self) -> list[str]:
        """The lines above the committed picture."""
        lines = [self.title or "Experiment", self._formula_text()]
        told = self.predict.as_text(self.values()).splitlines() if self.predict else []
        for line in [*told, f"Drawn at {self._settings()}", "Run this cell to move the controls."]:
            lines += textwrap.wrap(line, 112)
        return [line for line in lines if line]

    def static_png(self) -> bytes:
        """The picture, always revealed, under the settings that it was drawn for."""
        figure = self._draw_now()
        return with_header(to_png(figure), self._header(), figure.dpi or DPI)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Live widget, committed picture, stable text: each front end takes what it can show."""
        bundle: dict[str, Any] = {"text/plain": repr(self), **view_data(self)}
        if self.error is None:
            bundle["image/png"] = self.static_png()
        return bundle
