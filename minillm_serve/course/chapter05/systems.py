"""Models on cards, priced at the data sheets' full speed: what the chapter's simulations run on."""

from __future__ import annotations

from types import MappingProxyType

from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.cost import CostModel

#: Shown name -> model and card.
PAIRS: MappingProxyType[str, tuple[str, str]] = MappingProxyType(
    {
        "Llama-2-7B on an A100": ("Llama-2-7B", "A100 80GB"),
        "Llama-2-7B on an H200": ("Llama-2-7B", "H200 SXM"),
        "Llama-3-8B on an A100": ("Llama-3-8B", "A100 80GB"),
        "Llama-3-8B on an L4": ("Llama-3-8B", "L4"),
        "Llama-3-8B on an H200": ("Llama-3-8B", "H200 SXM"),
    }
)
START = "Llama-3-8B on an A100"


def cost_of(system: str) -> CostModel:
    """The cost model of a key of `PAIRS`.

    Raises:
        ValueError: there is no such system.
    """
    if system not in PAIRS:
        raise ValueError(f"system={system!r}: choose from {', '.join(PAIRS)}")
    model, card = PAIRS[system]
    return CostModel(HARDWARE[card], MODELS[model])


def brief(seconds: float) -> str:
    """A time in a few characters."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"
