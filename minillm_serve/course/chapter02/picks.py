"""`Picks`: what is clicked in an experiment's drawing, or chosen there with Enter."""

from __future__ import annotations

import anywidget
import traitlets

from minillm_serve.course.frontend import asset


class Picks(anywidget.AnyWidget):
    """Belongs inside an experiment, beside a drawing whose parts were marked with `prefix` + name.

    Attributes:
        prefix: how the symbols of parts that can be picked begin.
        picked: the symbol of the part that was picked last.
    """

    _esm = asset("picks.js")

    prefix = traitlets.Unicode().tag(sync=True)
    picked = traitlets.Unicode().tag(sync=True)

    def __repr__(self) -> str:
        """Without the address: notebooks are compared."""
        return "Picks()"
