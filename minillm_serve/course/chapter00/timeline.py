"""Experiment: the token timeline. An empty screen, then a tick a token, beside a reader's pace."""
# ruff: noqa: N803 - arguments have the names of the course's symbols

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.formula import Symbol
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.course.predict import Predict
from minillm_serve.sim import (
    HARDWARE,
    MODELS,
    Hardware,
    ModelShape,
    decode_step_time,
    format_bytes,
    prefill_time,
)
from minillm_serve.sim.metrics import TokenLog

READING_WPM = 238
"""Words a minute that adults read silently, English non-fiction: the mean of 190 studies
(Brysbaert, 'How many words do we read per minute?', Journal of Memory and Language 109, 2019)."""

PRESETS = {
    "chat, card shared by 32": {"L": 512, "n": 256, "B": 32},
    "chat, card to oneself": {"L": 512, "n": 256, "B": 1},
    "a paper in, a summary out": {"L": 4096, "n": 128, "B": 8},
    "short question, long story": {"L": 64, "n": 1024, "B": 16},
}
START = "chat, card shared by 32"


def reading_speed(tokens_per_word: float) -> float:
    """Tokens per second that a reader keeps up with."""
    if not tokens_per_word > 0:
        raise ValueError(f"tokens_per_word is {tokens_per_word!r}: give a number above 0")
    return READING_WPM / 60 * tokens_per_word


@dataclass(frozen=True, slots=True)
class Screen:
    """What one user sees while the card decodes B alike users in step.

    A floor: no waiting in line, no overheads; the prompt is computed alone, then every step costs
    what the roofline says.

    Attributes:
        card: the accelerator.
        model: what it runs.
        L: tokens of the prompt.
        n: tokens of the answer.
        B: users decoded together.
    """

    card: Hardware
    model: ModelShape
    L: int
    n: int
    B: int

    @property
    def log(self) -> TokenLog:
        """When each token comes, in seconds."""
        first = prefill_time(self.card, self.model, self.L)
        gaps = [
            decode_step_time(self.card, self.model, self.B, self.L + i) for i in range(1, self.n)
        ]
        return TokenLog(0.0, tuple(np.cumsum([first, *gaps]).tolist()))

    @property
    def fits(self) -> bool:
        """Whether weights and all users' caches fit into the card's memory."""
        return self.needs <= self.card.memory_bytes

    @property
    def needs(self) -> int:
        """Bytes of weights and caches at the end of the answer."""
        cache = self.B * (self.L + self.n) * self.model.kv_bytes_per_token()
        return self.model.weight_bytes() + cache


def experiment(
    tokens_per_word: float, card: str = "A100 80GB", model: str = "Llama-2-7B"
) -> FormulaExperiment:
    """The experiment, ready for the last line of a cell.

    Args:
        tokens_per_word: of the model's tokenizer on English, for the reader's pace.
        card: a key of `sim.HARDWARE`, the one it starts with.
        model: a key of `sim.MODELS`.
    """
    reading = reading_speed(tokens_per_word)

    def screen(L: int, n: int, B: int, card: str) -> Screen:
        return Screen(HARDWARE[card], MODELS[model], L, n, B)

    def live(L: int, n: int, B: int, card: str) -> dict[str, str]:
        log = screen(L, n, B, card).log
        return {
            "TTFT": _brief(log.ttft),
            "n": f"{n}",
            "TPOT": _brief(log.tpot or 0.0),
        }

    return FormulaExperiment(
        lambda L, n, B, card: draw(screen(L, n, B, card), reading),
        {
            "L": controls.powers_of_two("prompt L", 64, 4096, 512, unit="tokens"),
            "n": controls.powers_of_two("answer n", 16, 1024, 256, unit="tokens"),
            "B": controls.powers_of_two("batch B", 1, 128, 32),
            "card": controls.choice("card", list(HARDWARE), card),
        },
        title="The token timeline",
        formula=r"\text{all of it} = \mathrm{TTFT} + (n - 1) \cdot \mathrm{TPOT}",
        symbols={
            "TTFT": Symbol(r"\mathrm{TTFT}", "time to first token", "Prefill", control="L"),
            "n": Symbol("n", "tokens of the answer"),
            "TPOT": Symbol(
                r"\mathrm{TPOT}", "time per output token", "One decode step", control="B"
            ),
        },
        live=live,
        result=lambda **knobs: _brief(screen(**knobs).log.e2e),
        describe=lambda **knobs: describe(screen(**knobs), reading),
        predict=Predict(
            f"People read about {reading:.1f} tokens a second. An {card} runs {model} for "
            f"{PRESETS[START]['B']} users at once. How many times faster than a reader does it "
            "type, for each of them?",
            answer=typing_lead(screen(**PRESETS[START], card=card), reading),
            unit="times",
            within=0.4,
            explain="That lead is what a server can spend on serving more people at once.",
        ),
        presets=PRESETS,
        preset_label="who",
    )


def typing_lead(screen: Screen, reading: float) -> float:
    """Tokens that come per token that is read."""
    return 1 / ((screen.log.tpot or 0.0) * reading)


def describe(screen: Screen, reading: float) -> str:
    """What the picture shows, in words."""
    log = screen.log
    said = (
        f"{screen.model.name} on an {screen.card.name}: first token after {_brief(log.ttft)}, then "
        f"one every {_brief(log.tpot or 0.0)}, {typing_lead(screen, reading):.1f} times the pace "
        "of reading; at best."
    )
    if screen.fits:
        return said
    return (
        f"{said} But {format_bytes(screen.needs, 1)} are needed and the card has "
        f"{format_bytes(screen.card.memory_bytes, 1)}: such a batch does not fit."
    )


def draw(screen: Screen, reading: float) -> Figure:
    """The strip of ticks, and below it tokens over time."""
    fig, (strip, curve) = plots.figure(2, 1, height=5.0, height_ratios=[1, 3.2], sharex=True)
    log = screen.log
    _draw_strip(strip, screen, log)
    _draw_curve(curve, log, reading)
    strip.set_xlim(0, 1.04 * log.e2e)
    return fig


def _draw_strip(ax: Axes, screen: Screen, log: TokenLog) -> None:
    """One bar for the prompt, one tick a token."""
    plots.mark(ax.barh(0, log.ttft, height=1, color=plots.COLORS["prefill"]), "TTFT")
    thin = min(1.6, 160 / len(log.times))
    ticks = ax.vlines(log.times, -0.5, 0.5, color=plots.COLORS["decode"], lw=thin)
    if len(log.times) <= 64:  # more of them, lit, would run into one
        plots.mark(ticks, "n", "TPOT")
    ax.set(yticks=[], ylim=(-0.5, 0.5))
    ax.grid(visible=False)
    pace = f"an empty screen for {_brief(log.ttft)}, then a token every {_brief(log.tpot or 0.0)}"
    plots.label(ax, title=f"A{pace[1:]}" if screen.fits else f"Does not fit! Else {pace}")


def _draw_curve(ax: Axes, log: TokenLog, reading: float) -> None:
    """Tokens on the screen, and tokens read."""
    count = np.arange(1, len(log.times) + 1)
    (typed,) = ax.step(log.times, count, where="post", color=plots.COLORS["decode"], label="typed")
    plots.mark(typed, "n", "TPOT")
    plots.mark(ax.axvspan(0, log.ttft, color=plots.COLORS["prefill"], alpha=0.35, lw=0), "TTFT")
    end = 1.04 * log.e2e
    read = min((end - log.ttft) * reading, len(log.times))
    ax.plot(
        [log.ttft, log.ttft + read / reading],
        [0, read],
        color=plots.COLORS["limit"],
        ls="--",
        label=f"read, at {reading:.1f} tokens/s",
    )
    ax.set_ylim(0, 1.08 * len(log.times))
    title = f"All {len(log.times)} tokens after {_brief(log.e2e)}; by then {read:.0f} are read"
    plots.label(ax, x="seconds after the request", y="tokens", title=title)


def _brief(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"
