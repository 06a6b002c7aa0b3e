"""What a schedule record says without a clock: tokens computed between two tokens of one user."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from minillm_serve.core.record import ScheduleRecord, Span
from minillm_serve.sim.cost import Work


def tokens_per_step(record: ScheduleRecord) -> list[int]:
    """Tokens that each step computed, of all sequences together [steps]."""
    totals = np.zeros(len(record), dtype=int)
    for span in record.spans():
        totals[span.first_step : span.end_step] += span.num_tokens
    return [int(total) for total in totals]


def token_steps(record: ScheduleRecord, request_id: str, prompt_tokens: int) -> list[int]:
    """The steps in which a request got a token.

    A step gives one if it catches up with everything that the request has. (So tokens that are
    computed again after a preemption give none.)

    Args:
        record: of a run.
        request_id: whose.
        prompt_tokens: length of its prompt.
    """
    steps, known = [], prompt_tokens
    for step, end in _ends(record, request_id):
        if end >= known:
            steps.append(step)
            known = end + 1
    return steps


def work_between(record: ScheduleRecord, request_id: str, prompt_tokens: int) -> list[int]:
    """Tokens computed for anybody between two tokens of one request, gap by gap.

    The steps after the one token, up to and with the one that brings the next. Arguments as in
    `token_steps`.
    """
    totals = np.concatenate([[0], np.cumsum(tokens_per_step(record))])
    steps = token_steps(record, request_id, prompt_tokens)
    return [int(totals[after + 1] - totals[before + 1]) for before, after in pairwise(steps)]


def works(record: ScheduleRecord, prompts: Mapping[str, int]) -> list[Work]:
    """The work of every step, for a cost model.

    Args:
        record: of a run.
        prompts: request -> length of its prompt, of all who took part.
    """
    sums = np.zeros((len(record), 5), dtype=int)
    for span in record.spans():
        for step in range(span.first_step, span.end_step):
            start = span.start + (step - span.first_step) * span.num_tokens
            sums[step] += _share(start, span.num_tokens)
    for name, length in prompts.items():
        sums[token_steps(record, name, length), 2] += 1
    return [Work(*(int(number) for number in row)) for row in sums]


def _share(start: int, count: int) -> tuple[int, int, int, int, int]:
    """What a slice of one sequence adds to the fields of `Work`, samples excepted."""
    return 1, count, 0, start + count, count * start + count * (count + 1) // 2


def _ends(record: ScheduleRecord, request_id: str) -> list[tuple[int, int]]:
    """`(step, position after the last one computed)` of one request, in order."""
    return [
        pair for span in record.spans() if span.request_id == request_id for pair in _each(span)
    ]


def _each(span: Span) -> list[tuple[int, int]]:
    return [
        (span.first_step + index, span.start + (index + 1) * span.num_tokens)
        for index in range(span.num_steps)
    ]
