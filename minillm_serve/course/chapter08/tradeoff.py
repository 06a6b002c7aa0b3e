"""Experiment: bits against quality against users."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter08.record import Record
from minillm_serve.course.formula import Symbol
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.course.predict import Predict
from minillm_serve.quality.studies import GROUP, KV_BITS, WEIGHT_BITS
from minillm_serve.sim import HARDWARE, MODELS, GiB, ModelShape

FORMULA = r"\text{users} = \frac{M - W \cdot b_w / 8}{n \cdot (b_{kv} / 8) \cdot L}"
#: Bits of what was not rounded: as models are served.
FULL = 16
#: A scale in float32 for a row; a step and a start in float16 for a group of weights.
ROW_BITS, GROUP_BITS = 32, 32
#: Where it begins: KV, weights, tokens of a user.
KV, WEIGHTS, CONTEXT = 8, 8, 4096
#: Divergences that are marked, with what they do to the likeliest token.
MARKED = (0.01, 0.1)


@dataclass(frozen=True)
class System:
    """A model in some memory.

    Attributes:
        model: its shape.
        memory: bytes for weights and KV.
    """

    model: ModelShape
    memory: int

    def weight_bytes(self, bits: int) -> float:
        """Bytes of all weights; 0 bits mean 16, and fewer have steps and starts besides."""
        each = bits + GROUP_BITS / GROUP if bits else FULL
        return self.model.num_parameters * each / 8

    def kv_bytes(self, bits: int) -> float:
        """Bytes of a token's keys and values, likewise."""
        each = bits + ROW_BITS / self.model.head_dim if bits else FULL
        return self.model.kv_bytes_per_token(1) * each / 8

    def users(self, kv_bits: int, weight_bits: int, context: int) -> float:
        """Conversations of so many tokens that fit beside the weights."""
        room = max(0.0, self.memory - self.weight_bytes(weight_bits))
        return room / (self.kv_bytes(kv_bits) * context)


SYSTEMS = {
    "Llama-3-70B on two A100 80GB": System(
        MODELS["Llama-3-70B"], 2 * HARDWARE["A100 80GB"].memory_bytes
    ),
    "Llama-3-8B on an A100 40GB": System(MODELS["Llama-3-8B"], HARDWARE["A100 40GB"].memory_bytes),
    "SmolLM2-135M in 1 GiB": System(MODELS["SmolLM2-135M"], GiB),
}


def _named(bits: tuple[int, ...]) -> dict[str, int]:
    return {f"{one or FULL}": one for one in bits}


class BitsQualityUsers:
    """What the experiment shows.

    Args:
        record: what each pair of bits costs, as measured.
    """

    def __init__(self, record: Record) -> None:
        self.record = record

    def experiment(self) -> FormulaExperiment:
        """The experiment, ready for the last line of a cell."""
        return FormulaExperiment(
            self.draw,
            {
                "kv": controls.choice("KV bits", _named(KV_BITS), KV),
                "weights": controls.choice("weight bits", _named(WEIGHT_BITS), WEIGHTS),
                "context": controls.powers_of_two("tokens of a user L", 256, 32768, CONTEXT),
                "system": controls.choice("system", list(SYSTEMS), next(iter(SYSTEMS))),
            },
            title="Bits, quality, users",
            formula=FORMULA,
            symbols={
                "M": Symbol("M", "memory", "Weights and KV share it", "system"),
                "W": Symbol("W", "number of weights", "Of the model", "system"),
                "weights": Symbol("b_w", "bits of a weight", "With its share of a step"),
                "n": Symbol("n", "numbers of a token's KV", "2 N H_kv D", "system"),
                "kv": Symbol("b_{kv}", "bits of a key or value", "With its share of a scale"),
                "context": Symbol("L", "tokens of a user"),
            },
            live=self.live,
            result=self.result,
            describe=self.describe,
            predict=self.question(),
        )

    def question(self) -> Predict:
        """Weights or KV first, for users with long contexts?"""
        name = next(iter(SYSTEMS))
        system = SYSTEMS[name]
        before = system.users(0, 0, CONTEXT)
        by_kv, by_weights = system.users(8, 0, CONTEXT), system.users(0, 8, CONTEXT)
        right = "the KV cache" if by_kv > by_weights else "the weights"
        share = system.weight_bytes(0) / system.memory
        return Predict(
            f"{name}, all in 16 bits: room for {int(before)} users of {CONTEXT:,} tokens. You may "
            "halve one thing, to 8 bits. Which brings more users?",
            answer=right,
            choices=("the KV cache", "the weights"),
            explain=f"KV in 8 bits: {int(by_kv)} users; weights in 8 bits: {int(by_weights)}. The "
            f"weights fill {share:.0%} of this memory, so half of them is more room than all users "
            "had. Where they fill less than two thirds it is the other way round.",
        )

    def live(self, kv: int, weights: int, context: int, system: str) -> dict[str, str]:
        """The symbols' values."""
        chosen = SYSTEMS[system]
        weight_bits = 8 * chosen.weight_bytes(weights) / chosen.model.num_parameters
        kv_bits = 8 * chosen.kv_bytes(kv) / chosen.model.kv_bytes_per_token(1)
        return {
            "M": f"{chosen.memory / GiB:.3g} GiB",
            "W": f"{chosen.model.num_parameters / 1e9:.3g}e9",
            "weights": f"{weight_bits:.3g}",
            "n": f"{chosen.model.kv_bytes_per_token(1):,}",
            "kv": f"{kv_bits:.3g}",
            "context": f"{context:,}",
        }

    def result(self, kv: int, weights: int, context: int, system: str) -> str:
        """Users, and what it costs."""
        users, kl = SYSTEMS[system].users(kv, weights, context), self.record.kl(kv, weights)
        return f"{users:,.1f} users, at a KL of {kl:.2g}"

    def describe(self, kv: int, weights: int, context: int, system: str) -> str:
        """What the picture shows, in words."""
        chosen, kl = SYSTEMS[system], self.record.kl(kv, weights)
        users, before = chosen.users(kv, weights, context), chosen.users(0, 0, context)
        times = ""
        if (kv or weights) and before >= 1:
            times = f", {users / before:.1f} times as many as in 16 bits"
        moved = "nothing" if not kl else f"{self.record.changed(kl):.0%}"
        return (
            f"{system}: {int(users):,} users of {context:,} tokens{times}. What the model expects "
            f"moves by {kl:.2g} nats a token: of the likeliest tokens, {moved} changes. (Users by "
            "the formula; the divergence as measured on SmolLM2-135M: larger models lose less.)"
        )

    def draw(self, kv: int, weights: int, context: int, system: str) -> Figure:
        """Memory on the left; on the right all pairs of bits, and the one that was chosen."""
        fig, axes = plots.figure(1, 2, height=4.3, width_ratios=(2, 3))
        chosen = SYSTEMS[system]
        _draw_memory(axes[0], chosen, kv, weights, context)
        self._draw_pairs(axes[1], chosen, kv, weights, context)
        return fig

    def _draw_pairs(self, ax: Axes, chosen: System, kv: int, weights: int, context: int) -> None:
        colors = (plots.GREY, plots.BLUE, plots.SKY, plots.GREEN, plots.ORANGE)
        for weight_bits, color in zip(WEIGHT_BITS, colors, strict=True):
            pairs = [
                (chosen.users(kv_bits, weight_bits, context), self.record.kl(kv_bits, weight_bits))
                for kv_bits in KV_BITS
            ]
            users, kls = zip(*pairs, strict=True)
            shown = [max(kl, 1e-4) for kl in kls]
            name = f"weights {weight_bits or FULL}"
            width = 2.4 if weight_bits == weights else 1.0
            (line,) = ax.plot(users, shown, "o-", color=color, lw=width, ms=5, label=name)
            plots.mark(line, "weights", "kv", "context")
        here = max(self.record.kl(kv, weights), 1e-4)
        at = chosen.users(kv, weights, context)
        (point,) = ax.plot([at], [here], "o", ms=15, mfc="none", mew=2.4, color=plots.INK)
        plots.mark(point, "weights", "kv")
        for bound in MARKED:
            ax.axhline(bound, color=plots.COLORS["limit"], ls="--", lw=1)
            said = f"{self.record.changed(bound):.0%} of likeliest tokens change"
            ax.text(1.0, bound * 1.12, said, transform=ax.get_yaxis_transform(), ha="right",
                    fontsize=8.5, color=plots.COLORS["limit"],
                    bbox={"fc": "white", "ec": "none", "pad": 0.5, "alpha": 0.8})  # fmt: skip
        ax.set_yscale("log")
        ax.set_xlim(left=0)
        title = f"{at:,.1f} users at KL {self.record.kl(kv, weights):.2g}"
        plots.label(ax, x="users", y="KL (nats a token), down to 1e-4", title=title)
        ax.legend(fontsize=8.5, loc="lower right", frameon=True, framealpha=0.9)


def _draw_memory(ax: Axes, chosen: System, kv: int, weights: int, context: int) -> None:
    """As they are now, and in 16 bits: weights, whole users, what is left."""
    for place, (kv_bits, weight_bits) in enumerate(((0, 0), (kv, weights))):
        held = chosen.weight_bytes(weight_bits)
        each = chosen.kv_bytes(kv_bits) * context
        users = int(chosen.users(kv_bits, weight_bits, context))
        bars = ax.bar(place, held / GiB, 0.62, color=plots.COLORS["weights"])
        plots.mark(bars, "W", "weights")
        bars = ax.bar(place, users * each / GiB, 0.62, bottom=held / GiB, color=plots.COLORS["kv"])
        plots.mark(bars, "n", "kv", "context")
        middle = (held + users * each / 2) / GiB
        if users * each > 0.06 * chosen.memory:
            ax.text(place, middle, f"{users:,} users", ha="center", va="center", color="white")
        ax.text(place, held / GiB / 2, "weights", ha="center", va="center", color="white")
    line = ax.axhline(chosen.memory / GiB, color=plots.COLORS["limit"], ls="--", lw=1.6)
    plots.mark(line, "M")
    ax.set_xticks([0, 1], ["16 and 16", f"KV {kv or FULL}, weights {weights or FULL}"])
    ax.set_ylim(0, 1.1 * chosen.memory / GiB)
    ax.grid(axis="x", visible=False)
    plots.label(ax, y="memory (GiB)", title="Who shares it")
