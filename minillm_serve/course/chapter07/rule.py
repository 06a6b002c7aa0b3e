"""The acceptance rule on a small scale: five words, two distributions, many draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import plots
from minillm_serve.runtime.sampling.inversion import invert
from minillm_serve.runtime.spec.accept import Accepted, AcceptRule

Distribution = Sequence[float]


def overlap(p: Distribution, q: Distribution) -> float:
    """The chance that a draft is kept: the sum of min(p, q) [alpha]."""
    return sum(map(min, p, q))


def residual(p: Distribution, q: Distribution) -> list[float]:
    """What p has more than q; it sums to 1 - alpha."""
    return [max(0.0, a - b) for a, b in zip(p, q, strict=True)]


def draw_bars(words: Sequence[str], p: Distribution, q: Distribution) -> Figure:
    """Both distributions; what becomes of drafts; and what comes out."""
    fig, axes = plots.figure(1, 3, height=3.3, sharey=True)
    both = [min(a, b) for a, b in zip(p, q, strict=True)]
    places = np.arange(len(words))
    green, red = plots.COLORS["accepted"], plots.COLORS["rejected"]
    ours, theirs = plots.COLORS["decode"], plots.COLORS["peer"]
    axes[0].bar(places - 0.2, p, 0.4, color=ours, label="p, the model")
    axes[0].bar(places + 0.2, q, 0.4, color=theirs, label="q, the drafter")
    refused = [b - m for b, m in zip(q, both, strict=True)]
    axes[1].bar(places, both, 0.7, color=green, label="kept: min(p, q)")
    axes[1].bar(places, refused, 0.7, bottom=both, color=red, label="refused")
    axes[2].bar(places, both, 0.7, color=green, label="kept")
    axes[2].bar(places, residual(p, q), 0.7, bottom=both, color=ours, label="drawn from p - q")
    axes[2].plot(places, p, "_", ms=22, mew=2, color=plots.INK, label="p")
    alpha = overlap(p, q)
    titles = ("Two opinions", f"Of the drafts {alpha:.0%} stay", "What comes out is p")
    for ax, title in zip(axes, titles, strict=True):
        _dress(ax, words, title)
    axes[0].set_ylabel("probability")
    return fig


def _dress(ax: Axes, words: Sequence[str], title: str) -> None:
    ax.set_xticks(range(len(words)), words)
    ax.grid(axis="x", visible=False)
    plots.label(ax, title=title)
    ax.set_ylim(0, 0.62)
    ax.title.set_fontsize(11)
    ax.legend(fontsize=9, loc="upper right", frameon=False)


def outcomes(
    rule: AcceptRule, p: Distribution, q: Distribution, count: int, seed: int = 0
) -> list[int]:
    """How often each token comes out first, if drafts come from q and a rule decides on them.

    Args:
        rule: decides.
        p: what should come out.
        q: what drafts are drawn from; one draft a time.
        count: times.
        seed: of all draws.
    """
    draws = torch.from_numpy(np.random.default_rng(seed).random((count, 5)))
    ps = torch.tensor(p, dtype=torch.float32).repeat(count, 2, 1)
    qs = torch.tensor(q, dtype=torch.float32).repeat(count, 1, 1)
    drafts = invert(qs[:, 0], draws[:, 4])[:, None]
    lengths = torch.ones(count, dtype=torch.int64)
    accepted = Accepted(*rule(ps, qs, drafts, lengths, draws[:, :4].reshape(count, 2, 2)))
    return torch.bincount(accepted.token_ids[:, 0], minlength=len(p)).tolist()


def chi_square(counts: Sequence[int], p: Distribution) -> tuple[float, float]:
    """Pearson's test: whether counts are what draws from p give.

    Returns:
        The statistic, and how likely it is to be as large or larger if they are.
    """
    total = sum(counts)
    statistic = sum((n - total * x) ** 2 / (total * x) for n, x in zip(counts, p, strict=True))
    return statistic, _tail(statistic, len(p) - 1)


def chi_square_of_two(one: Sequence[int], other: Sequence[int]) -> tuple[float, float]:
    """Whether two rows of counts can have come from one distribution, whatever it is.

    Returns:
        As `chi_square`.
    """
    sums = [a + b for a, b in zip(one, other, strict=True)]
    total, statistic = sum(sums), 0.0
    for row in (one, other):
        for count, both in zip(row, sums, strict=True):
            expected = sum(row) * both / total
            statistic += (count - expected) ** 2 / expected
    return statistic, _tail(statistic, len(sums) - 1)


def _tail(statistic: float, degrees: int) -> float:
    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def draw_outcomes(
    words: Sequence[str], p: Distribution, counts: dict[str, Sequence[int]]
) -> Figure:
    """How far what came out is from p, for several rules.

    Args:
        words: of the vocabulary.
        p: what should come out.
        counts: name of a rule -> how often each token came out.
    """
    fig, axes = plots.figure(1, len(counts), height=2.9, sharey=True)
    for ax, (name, found) in zip(axes, counts.items(), strict=True):
        total = sum(found)
        bars = ax.bar(words, [n / total for n in found], 0.7, color=plots.COLORS["decode"])
        bars.set_label(f"{total:,} draws")
        ax.plot(range(len(p)), p, "_", ms=26, mew=2.4, color=plots.INK, label="p")
        _, chance = chi_square(found, p)
        verdict = "could be p" if chance > 1e-3 else "is not p"
        plots.label(ax, title=f"{name}: {verdict}")
        ax.title.set_fontsize(11)
        ax.grid(axis="x", visible=False)
    axes[0].set_ylabel("share")
    return fig
