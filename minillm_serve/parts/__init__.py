"""Slots of the engine that anybody may fill: `LLM(model, parts={"block_pool": MyBlockPool})`.

Each slot has a protocol. A part is checked against it at the door, watched while it runs, and named
in the error if it fails; the rest of the engine stays ours.
"""

from minillm_serve.parts.fit import Fitted, fit_parts
from minillm_serve.parts.part import Part
from minillm_serve.parts.slots import SLOTS, Parts, Slot, read_parts

__all__ = ["SLOTS", "Fitted", "Part", "Parts", "Slot", "fit_parts", "read_parts"]
