"""ex07's cases for `kept` and `accept`: from one draft to a mixed batch."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minillm_serve.course.exercises.batches_ex07 import Rows, Rule, batch, drafted, telling
from minillm_serve.course.exercises.cases_ex07 import (
    JUST_BELOW_1,
    drawn_from,
    grid,
    one_hot,
    spread,
)
from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.mistakes_ex07 import COUNTS, TOKENS
from minillm_serve.course.exercises.rules_ex07 import outcome, right_count

#: Draws from 0 to 1 with which one place of a step is tried.
SWEEP = 24
#: A draw by which nearly every draft is kept, and one by which few are.
LOW, HIGH = 0.001, 0.999
#: Tests that are mistaken for the right one.
TESTS = (
    "untested",
    "never",
    "by_q",
    "by_p",
    "upside_down",
    "p_above_q",
    "likeliest",
    "pick_draw",
)


def _counts(*names: str) -> list[Rule]:
    return [COUNTS[name].rule for name in names]


def _tokens(*names: str) -> list[Rule]:
    return [TOKENS[name].rule for name in names]


# How many are kept.


def _tested(p: Sequence[float], q: Sequence[float], drafts: Sequence[int], count: int) -> Case:
    """Each of these drafts, tested by numbers from 0 to 1. (Those that pick run the other way.)"""
    tests = grid(count)
    size = count * len(drafts)
    return batch(
        [[p, p[::-1]]] * size,
        [[q]] * size,
        [[draft] for draft in drafts for _ in tests],
        [[(u, 1 - u), (0.5, 0.5)] for _ in drafts for u in tests],
    )


def threshold_cases(rng: random.Random) -> Sequence[Case]:
    """Drafts that the drafter likes too much, and some that it likes too little."""

    def all_tokens(rng: random.Random) -> Case:
        return _tested(spread(rng, 6), spread(rng, 6), range(6), 20)

    return [
        _tested([0.3, 0.5, 0.2], [0.15, 0.3, 0.55], (2, 0), 20),
        telling(rng, all_tokens, right_count, _counts(*TESTS)),
    ]


def edge_cases(rng: random.Random) -> Sequence[Case]:
    """Probabilities of 0 and 1, and the smallest and the largest draw there is."""
    size = rng.randrange(4, 7)
    token, p = rng.randrange(size), spread(rng, size)
    sure, none = one_hot(token, size), [float(x != token) / (size - 1) for x in range(size)]
    tried = [
        (none, p, 0.0),  # p = 0: never, whatever the draw
        (none, p, 0.3),
        (none, sure, 0.0),
        (none, none, 0.0),  # 0 / 0
        (sure, p, JUST_BELOW_1),  # greedy, and right
        (sure, sure, JUST_BELOW_1),
        (p, none, JUST_BELOW_1),  # q = 0: a rounding error, and p may say it
        (p, p, JUST_BELOW_1),  # the drafter is as good as the model
    ]
    return [
        batch(
            [[p, p] for p, _, _ in tried],
            [[q] for _, q, _ in tried],
            [[token]] * len(tried),
            [[(u, 0.5), (0.5, 0.5)] for _, _, u in tried],
        )
    ]


def prefix_cases(rng: random.Random) -> Sequence[Case]:
    """Several drafts, some of which fail."""

    def few(rng: random.Random) -> Case:
        return drafted(rng, [3] * 5, 3, 3)

    def several(rng: random.Random) -> Case:
        return drafted(rng, [4] * 8, 4)

    wrong = _counts("all_that_pass", "row_behind", *TESTS)
    return [telling(rng, made, right_count, wrong) for made in (few, several)]


def length_cases(rng: random.Random) -> Sequence[Case]:
    """0, 1 and more drafts side by side; beyond them lie more that would pass, or NaN."""

    def alike(rng: random.Random) -> Case:
        return drafted(rng, [2, 0, 1, 4], 4)

    def spoilt(rng: random.Random) -> Case:
        return drafted(rng, [0, 3, 1], 3, spoil=True)

    return [
        telling(rng, alike, right_count, _counts("beyond", "untested")),
        telling(rng, spoilt, right_count),
    ]


# What comes behind them.


def greedy_cases(rng: random.Random) -> Sequence[Case]:
    """The model is certain at each row; the drafter guesses, or is certain, too."""
    size = rng.randrange(4, 7)
    sure = [rng.randrange(size) for _ in range(4)]
    wrong = (sure[1] + 1) % size
    p, q = [one_hot(token, size) for token in sure], [spread(rng, size) for _ in range(3)]
    certain = [one_hot(token, size) for token in (sure[0], wrong, sure[2])]
    draws = [(rng.random(), rng.random()) for _ in range(4)]
    first = batch(
        [[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]],
        [[[0.25, 0.25, 0.5]]],
        [[1]],
        [[(0.7, 0.2), (0.4, 0.6)]],
    )
    return [
        first,
        batch([p], [q], [sure[:3]], [draws]),
        batch([p, p], [q, certain], [[wrong, *sure[1:3]], [sure[0], wrong, sure[2]]], [draws] * 2),
    ]


def _picked(
    p: Rows, q: Rows, drafts: Sequence[int], draws: Sequence[tuple[float, float]], at: int
) -> Case:
    """A step again and again; behind `at` drafts, tokens are picked by numbers from 0 to 1.

    `draws` has one pair for each draft that counts, and one more.
    """
    padded = [*draws, *[(LOW, 0.5)] * (len(p) - len(draws))]
    steps = [[*padded[:at], (padded[at][0], u), *padded[at + 1 :]] for u in grid(SWEEP)]
    lengths = [len(draws) - 1] * SWEEP
    return batch([p] * SWEEP, [q] * SWEEP, [drafts] * SWEEP, steps, lengths=lengths)


def repair_cases(rng: random.Random) -> Sequence[Case]:
    """A draft that the drafter likes far too much is refused: the first one, then the second."""

    def refused(at: int, width: int, rng: random.Random) -> Case:
        size = 12
        p, q = ([spread(rng, size) for _ in range(rows)] for rows in (width + 1, width))
        drafts = [drawn_from(rng, row) for row in q]
        drafts[at] = max(range(size), key=lambda x: q[at][x] - p[at][x])
        # Numbers that should not pick here lie apart, so that they find other tokens.
        draws = [(LOW, (i + 0.2 + 0.4 * rng.random()) / (width + 1)) for i in range(width + 1)]
        draws[at] = (HIGH, 0.0)
        return _picked(p, q, drafts, draws, at)

    def only(rng: random.Random) -> Case:
        return refused(0, 1, rng)

    def second(rng: random.Random) -> Case:
        return refused(1, 3, rng)

    wrong = _tokens(
        "again_p",
        "again_q",
        "without_draft",
        "absolute",
        "last_row",
        "most_likely",
        "test_draw",
        "last_draw",
    )
    return [
        telling(rng, only, outcome, wrong),
        telling(rng, second, outcome, [*wrong, *_tokens("next_row", "first_draw")]),
    ]


def bonus_cases(rng: random.Random) -> Sequence[Case]:
    """All drafts are kept: two of two, then one of one, where others have more."""

    def complete(length: int, width: int, rng: random.Random) -> Case:
        p, q = ([spread(rng, 8) for _ in range(rows)] for rows in (width + 1, width))
        drafts = [drawn_from(rng, row) for row in q]
        draws = [(LOW, 0.6 + 0.4 * rng.random()) for _ in range(length + 1)]
        return _picked(p, q, drafts, draws, length)

    def full(rng: random.Random) -> Case:
        return complete(2, 2, rng)

    def shorter(rng: random.Random) -> Case:
        return complete(1, 3, rng)

    wrong = _tokens("no_bonus", "row_before", "repaired", "most_likely", "test_draw", "first_draw")
    return [
        telling(rng, full, outcome, wrong),
        telling(rng, shorter, outcome, [*wrong, *_tokens("end_of_p", "last_draw")]),
    ]


def mixed_cases(rng: random.Random) -> Sequence[Case]:
    """Greedy and sampled, 0 to 4 drafts, certain and drawn, side by side; beyond them is NaN."""

    def few(rng: random.Random) -> Case:
        return drafted(rng, [2, 0, 1], 2, 4, spoil=True)

    def crowd(rng: random.Random) -> Case:
        lengths = [4, 0, 1, 4, 2, *(rng.randrange(5) for _ in range(19))]
        case = drafted(rng, lengths, 4, 7, spoil=True)
        for s, length in enumerate(lengths):
            drafts = case["drafts"][s].tolist()
            for i in range(length):
                if s % 3 == 1:  # certain drafts
                    case["q"][s, i] = case["q"].new_tensor(one_hot(drafts[i], 7))
            for i in range(length + 1):
                if s % 3 == 0:  # greedy, and the drafter is right more often than not
                    right = i < length and rng.random() < 0.7
                    token = drafts[i] if right else rng.randrange(7)
                    case["p"][s, i] = case["p"].new_tensor(one_hot(token, 7))
        return case

    return [telling(rng, few, outcome), telling(rng, crowd, outcome)]
