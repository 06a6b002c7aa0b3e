"""Controls for experiments: native ipywidgets, labelled alike, each with its unit.

Any ipywidget with a `value` can be a control; these are the usual ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as widgets

WIDTH = "min(100%, 32em)"
LABEL_WIDTH = "12em"


def _look(label: str, unit: str, tip: str) -> dict[str, Any]:
    """The arguments that all controls share."""
    return {
        "description": f"{label} ({unit})" if unit else label,
        "style": {"description_width": LABEL_WIDTH},
        "layout": {"width": WIDTH},
        "tooltip": tip or None,
    }


def integer(
    label: str, low: int, high: int, value: int, *, step: int = 1, unit: str = "", tip: str = ""
) -> widgets.IntSlider:
    """A slider over integers, `low` and `high` included."""
    look = _look(label, unit, tip)
    return widgets.IntSlider(value, min=low, max=high, step=step, **look)


def real(
    label: str,
    low: float,
    high: float,
    value: float,
    *,
    step: float = 0.1,
    unit: str = "",
    fmt: str = ".2f",
    tip: str = "",
) -> widgets.FloatSlider:
    """A slider over real numbers; `fmt` formats the number beside it."""
    look = _look(label, unit, tip)
    return widgets.FloatSlider(value, min=low, max=high, step=step, readout_format=fmt, **look)


def powers_of_two(
    label: str, low: int, high: int, value: int, *, unit: str = "", tip: str = ""
) -> widgets.SelectionSlider:
    """A slider over powers of two: 1, 2, 4, ... Its value is the power itself.

    Raises:
        ValueError: `low`, `high` or `value` is not a power of two, or they are out of order.
    """
    for name, number in (("low", low), ("high", high), ("value", value)):
        if number < 1 or number & (number - 1):
            raise ValueError(f"{name}={number} is not a power of two")
    if not low <= value <= high:
        raise ValueError(f"value={value} is not between low={low} and high={high}")
    options = [(f"{2**e:,}", 2**e) for e in range(low.bit_length() - 1, high.bit_length())]
    return widgets.SelectionSlider(options=options, value=value, **_look(label, unit, tip))


def choice(
    label: str,
    options: Sequence[Any] | Mapping[str, Any],
    value: Any,
    *,
    unit: str = "",
    tip: str = "",
) -> widgets.Dropdown:
    """A drop-down list: a sequence of values, or a mapping of shown text to value."""
    shown = list(options.items()) if isinstance(options, Mapping) else list(options)
    return widgets.Dropdown(options=shown, value=value, **_look(label, unit, tip))


def switch(label: str, value: bool = False, *, tip: str = "") -> widgets.Checkbox:
    """A check box."""
    look = _look(label, "", tip)
    return widgets.Checkbox(value, indent=False, **look)


def shown_value(control: widgets.Widget) -> str:
    """What the control shows as its value: the option's text for lists, else the number."""
    text = getattr(control, "label", None)
    if isinstance(control, widgets.Dropdown | widgets.SelectionSlider) and text is not None:
        return str(text)
    value = control.value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.6g}" if isinstance(value, int | float) else str(value)
