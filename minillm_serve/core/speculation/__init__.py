"""How many drafts a sequence gets in the next step, what that costs, and how often they hold."""

from minillm_serve.core.speculation.adaptive import AdaptiveLengths
from minillm_serve.core.speculation.costs import Curve, StepCosts
from minillm_serve.core.speculation.drafting import Speculation
from minillm_serve.core.speculation.lengths import DraftLengths, FixedLengths
from minillm_serve.core.speculation.stats import SpecCounter, SpecStats

__all__ = [
    "AdaptiveLengths",
    "Curve",
    "DraftLengths",
    "FixedLengths",
    "SpecCounter",
    "SpecStats",
    "Speculation",
    "StepCosts",
]
