"""Experiment: guess, then check. Real text, step by step, with what was guessed of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter07 import page
from minillm_serve.course.chapter07.replay import Step, Tally, replay
from minillm_serve.course.chapter07.watch import Answer
from minillm_serve.course.formula import Symbol
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.course.predict import Predict
from minillm_serve.sim.speculation import expected_tokens

#: Where it begins.
KIND, DRAFTER, K = "code and format", "trained head", 4
#: Most drafts of a step.
MOST = 5
#: The page, the race and the counts: left, bottom, width and height, of the figure's.
PLACES = ((0.015, 0.515, 0.97, 0.415), (0.065, 0.1, 0.48, 0.255), (0.70, 0.1, 0.285, 0.255))
FORMULA = r"\text{E[tokens]} = \frac{1 - \alpha^{k+1}}{1 - \alpha}"


class GuessThenCheck:
    """What the experiment shows, for answers that were watched.

    Args:
        answers: kind of text -> an answer to step through.
        piece: the text of a token.
        drafters: names of those to choose from.
    """

    def __init__(
        self, answers: Mapping[str, Answer], piece: Callable[[int], str], drafters: list[str]
    ) -> None:
        self.answers = dict(answers)
        self.piece = piece
        self.drafters = drafters

    def experiment(self) -> FormulaExperiment:
        """The experiment, ready for the last line of a cell."""
        most = max(len(answer.token_ids) for answer in self.answers.values()) - 1
        return FormulaExperiment(
            self.draw,
            {
                "step": controls.integer("after step", 1, most, self.first_step()),
                "kind": controls.choice("text", list(self.answers), KIND),
                "drafter": controls.choice("drafter", self.drafters, DRAFTER),
                "k": controls.integer("drafts a step k", 0, MOST, K),
            },
            title="Guess, then check",
            formula=FORMULA,
            symbols={
                "alpha": Symbol(r"\alpha", "share of guesses that are right", "Counted, here"),
                "k": Symbol("k", "drafts a step"),
            },
            live=self.live,
            result=self.result,
            describe=self.describe,
            predict=self.question(),
        )

    def steps(self, kind: str, drafter: str, k: int) -> list[Step]:
        """All steps over an answer."""
        answer = self.answers[kind]
        return replay(answer.token_ids, answer.guesses[drafter], k)

    def first_step(self) -> int:
        """A step of the first setting in which some drafts are right and some are not."""
        steps = self.steps(KIND, DRAFTER, K)
        telling = (n for n, s in enumerate(steps, 1) if n > 7 and 0 < s.kept < len(s.drafts))
        return next(telling, min(5, len(steps)))

    def question(self) -> Predict:
        """How many steps the first setting takes."""
        tally = Tally.of(self.steps(KIND, DRAFTER, K))
        return Predict(
            f"The model writes {tally.tokens} tokens of code. Without drafts that takes "
            f"{tally.tokens} steps. With up to {K} drafts a step, guessed by a small trained head, "
            "it takes ...",
            answer=tally.steps,
            unit="steps",
            within=0.15,
            explain=f"{tally.kept} tokens were guessed, and each step gives one more: "
            f"{tally.tokens_per_step:.2f} tokens a step.",
        )

    def live(self, step: int, kind: str, drafter: str, k: int) -> dict[str, str]:
        """The symbols' values."""
        return {"alpha": f"{Tally.of(self.steps(kind, drafter, k)).alpha:.2f}", "k": f"{k}"}

    def result(self, step: int, kind: str, drafter: str, k: int) -> str:
        """What the formula says of the whole answer, and what was counted."""
        tally = Tally.of(self.steps(kind, drafter, k))
        foretold, counted = expected_tokens(tally.alpha, k), tally.tokens_per_step
        return f"{foretold:.2f} tokens a step; counted: {counted:.2f}"

    def describe(self, step: int, kind: str, drafter: str, k: int) -> str:
        """What the picture shows, in words."""
        every = self.steps(kind, drafter, k)
        done = every[:step]
        tally, whole, last = Tally.of(done), Tally.of(every), done[-1]
        guessed = "no drafts"
        if last.drafts:
            guessed = f"{len(last.drafts)} drafts, of which {last.kept} were right"
        return (
            f"Step {len(done)}: {guessed}, and one more token. {tally.tokens} tokens so far; plain "
            f"decoding would be at step {tally.tokens}. {tally.drafts - tally.kept} drafts were "
            f"thrown away. The whole answer takes {whole.steps} steps instead of {whole.tokens}."
        )

    def draw(self, step: int, kind: str, drafter: str, k: int) -> Figure:
        """The page; below it the race against plain decoding, and what was counted."""
        fig, whole = plots.figure(height=5.2)
        whole.remove()
        fig.set_layout_engine("none")  # everything has its place: nothing need be measured
        text, race, counts = map(fig.add_axes, PLACES)
        every = self.steps(kind, drafter, k)
        done = every[:step]
        page.draw(text, page.marks(self.answers[kind].token_ids, done, self.piece))
        last = done[-1]
        verdict = (
            f"{last.kept} of {len(last.drafts)} drafts accepted" if last.drafts else "no drafts"
        )
        verdict += f", {last.kept + 1} new token{'s' if last.kept else ''}"
        plots.label(text, title=f"Step {len(done)} of {len(every)}: {verdict}")
        _draw_race(race, every, len(done))
        _draw_counts(counts, Tally.of(done))
        return fig


def _draw_race(ax: Axes, every: list[Step], now: int) -> None:
    """Tokens over steps, with drafts and without."""
    tokens = [0]
    for step in every:
        tokens.append(tokens[-1] + step.kept + 1)
    total, here = tokens[-1], tokens[now]
    ax.plot([0, total], [0, total], color=plots.COLORS["baseline"], lw=1.8, label="plain decoding")
    (line,) = ax.plot(
        range(len(tokens)), tokens, color=plots.COLORS["decode"], lw=2, label="with drafts"
    )
    plots.mark(line, "alpha", "k")
    ax.plot([now, here], [here, here], color=plots.INK, lw=1.2, ls=":")
    ax.plot([now], [here], "o", color=plots.COLORS["decode"], ms=7)
    ax.plot([here], [here], "o", color=plots.COLORS["baseline"], ms=7)
    ax.set(xlim=(0, total), ylim=(0, 1.04 * total))
    plots.label(ax, x="steps", y="tokens", title=f"{here} tokens: step {now} instead of {here}")
    ax.title.set_fontsize(11)
    ax.legend(loc="lower right", fontsize=9, frameon=False)


def _draw_counts(ax: Axes, tally: Tally) -> None:
    """What all steps so far gave, and what they threw away."""
    thrown = tally.drafts - tally.kept
    values = {
        "steps": (tally.steps, plots.COLORS["decode"]),
        "drafts kept": (tally.kept, plots.COLORS["accepted"]),
        "thrown away": (thrown, plots.COLORS["rejected"]),
    }
    for y, (value, color) in enumerate(values.values()):
        bar = ax.barh(y, value, 0.62, color=color)
        plots.mark(bar, *(("alpha", "k") if y else ("k",)))
        ax.text(value, y, f" {value}", va="center", fontsize=10)
    ax.set_yticks(range(len(values)), list(values))
    ax.invert_yaxis()
    ax.set_xlim(0, 1.15 * max(value for value, _ in values.values()) + 1)
    ax.grid(axis="y", visible=False)
    plots.label(ax, x="so far", title=f"{tally.tokens_per_step:.2f} tokens a step")
    ax.title.set_fontsize(11)
