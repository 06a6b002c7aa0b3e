"""One form for all results: a table to read, JSON to keep, a plot to look at."""

import argparse
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minillm_serve.models.schemes import SCHEMES
from minillm_serve.stamp import stamp


@dataclass(frozen=True, slots=True)
class Comparison:
    """Repeated measurements of several systems, taken in turn in one run.

    Attributes:
        title: what was measured.
        unit: of the values.
        values: name -> one value a repetition; the first name is what others are compared with.
        higher_is_better: whether a large value is good.
        context: what identifies the measurement besides the machine.
    """

    title: str
    unit: str
    values: dict[str, list[float]]
    higher_is_better: bool = True
    context: Mapping[str, Any] = field(default_factory=dict)

    @property
    def medians(self) -> dict[str, float]:
        """Name -> median."""
        return {name: statistics.median(values) for name, values in self.values.items()}

    def ratio(self, name: str) -> float:
        """How many times better the first system is than another, by their medians."""
        first, other = next(iter(self.medians.values())), self.medians[name]
        return first / other if self.higher_is_better else other / first

    def table(self) -> str:
        """A line a system: median, span, ratio."""
        first, *_ = self.values
        lines = [f"{self.title} ({self.unit}, medians)"]
        for name, median in self.medians.items():
            low, high = min(self.values[name]), max(self.values[name])
            ratio = "" if name == first else f"   {first} is {self.ratio(name):.2f} x as fast"
            lines.append(f"  {name:30} {median:10.2f}  [{low:.2f} .. {high:.2f}]{ratio}")
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """What is kept as JSON."""
        return {
            "stamp": stamp(**self.context),
            "title": self.title,
            "unit": self.unit,
            "values": self.values,
            "median": self.medians,
            "ratio": {name: self.ratio(name) for name in self.values},
        }

    def save(self, path: Path) -> None:
        """Writes JSON, and a plot beside it where matplotlib is installed."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.record(), indent=1) + "\n")
        print(f"written to {path}")
        try:
            from minillm_serve.course import plots
        except ImportError:
            return
        figure, axes = plots.figure(height=1.2 + 0.6 * len(self.values))
        names = list(self.values)[::-1]
        ours = (next(iter(self.values)), "ours")
        colors = [plots.COLORS["ours" if n.startswith(ours) else "peer"] for n in names]
        bars = axes.barh(names, [self.medians[name] for name in names], color=colors)
        axes.bar_label(bars, fmt="%.1f", padding=4)
        axes.margins(x=0.12)
        plots.label(axes, x=self.unit, y="", title=self.title)
        figure.savefig(path.with_suffix(".png"))


def positive(text: str) -> int:
    """An option's value that counts something.

    Raises:
        argparse.ArgumentTypeError: it is no whole number of at least 1.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def add_quantization(made: argparse.ArgumentParser) -> None:
    """Which quantized weights to measure as well."""
    made.add_argument(
        "--quantization",
        action="append",
        choices=SCHEMES,
        default=[],
        help="also with weights in 8 or 4 bits; may be given twice",
    )


def parser(subject: str, description: str | None) -> argparse.ArgumentParser:
    """The options that every comparison has."""
    made = argparse.ArgumentParser(
        prog=f"minillm-serve bench {subject}", description=(description or "").splitlines()[0]
    )
    made.add_argument("--repeat", type=positive, default=3, help="runs (default: %(default)s)")
    made.add_argument("--output", type=Path, help="write JSON here, and a plot beside it")
    return made
