"""ex08: keys and values in 8 bits, and scales that travel with them (slot `kv_quantizer`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from minillm_serve.course.exercises import answers_ex08 as answers
from minillm_serve.course.exercises import blocks_ex08 as blocks
from minillm_serve.course.exercises import cases_ex08 as cases
from minillm_serve.course.exercises import engine_ex08 as engine
from minillm_serve.course.exercises import trips_ex08 as trips
from minillm_serve.course.exercises.exercise import Case, Check, Exercise, Limits, Part

Maker = Callable[[random.Random], Sequence[Case]]


def _scaled(name: str, made: Maker) -> Check:
    return Check(name, 1, made, judge=answers.judge_scales, describe=cases.described)


def _coded(name: str, points: float, made: Maker) -> Check:
    return Check(
        name,
        points,
        made,
        run=answers.run_codes,
        judge=answers.judge_codes,
        describe=cases.described,
    )


def _copied(name: str, points: float, made: Maker) -> Check:
    return Check(
        name,
        points,
        made,
        run=blocks.run_copy,
        judge=blocks.judge_copy,
        describe=cases.described_moves,
    )


def _tripped(name: str, points: float, made: Maker, judge: Callable[[Case, object], None]) -> Check:
    return Check(name, points, made, run=trips.run_quantizer, judge=judge, describe=cases.described)


SCALES = Part(
    id="scales",
    answer="scales_of",
    checks=(
        _scaled("gives each token and each head a scale of its own", cases.scale_cases),
        _scaled("gives a row of zeros the scale 0", cases.zero_scale_cases),
        _scaled("holds for very small and very large numbers", cases.size_cases),
        _scaled("is float32, whatever the model computes in", cases.half_cases),
    ),
    hints=(
        "A row is the D numbers of one token in one head. Its largest magnitude is to get the code "
        "127. What is one step worth then?",
        "x.abs().amax(-1) looks through the last dimension and gives [T, H_kv].",
        "x.float().abs().amax(-1) / 127. (abs before amax: -2.54 is larger than 1.)",
    ),
)

CODES = Part(
    id="codes",
    answer="codes_of",
    checks=(
        _coded("rounds to the nearest step", 2, cases.code_cases),
        _coded("divides nothing by zero", 1, cases.zero_code_cases),
    ),
    hints=(
        "How many steps is a number? x divided by its row's scale: scales[..., None] is "
        "[T, H_kv, 1], and fits beside x.",
        ".to(torch.int8) cuts off what is behind the point. Round before that.",
        "Where a scale is 0, all numbers of the row are 0 as well. Divide them by 1: "
        "torch.where(scales > 0, scales, 1).",
    ),
)

NUMBERS = Part(
    id="numbers",
    answer="numbers_of",
    checks=(
        Check(
            "multiplies each code by its scale, in float32",
            1,
            cases.number_cases,
            judge=answers.judge_numbers,
            describe=cases.described,
        ),
    ),
    hints=(
        "The last dimension is a row, and a row has one scale. What shape must scales have to be "
        "multiplied by codes?",
        "codes.float() * scales[..., None], whatever stands before the last dimension.",
    ),
)

COPY = Part(
    id="copy",
    answer="copy_blocks",
    checks=(
        _copied("copies whole blocks, and all that belongs to them", 2, cases.copy_cases),
        _copied("leaves the originals alone", 1, cases.still_cases),
    ),
    hints=(
        "Which tensors of the cache have something of block b? cache.values() has all of them, and "
        "the first dimension of each is the block.",
        "tensor[target] = tensor[source] writes into the tensor that is there. Which of the two "
        "numbers of a move is which?",
    ),
)

QUANTIZER = Part(
    id="quantizer",
    answer="Quantizer",
    checks=(
        _tripped("loses half a step at most, whatever comes", 2, cases.row_cases, trips.judge_trip),
        _tripped("errs to no side", 1, cases.bias_cases, trips.judge_bias),
        _tripped(
            "stores a token alike in any company", 1, cases.company_cases, trips.judge_company
        ),
        Check(
            "serves a tiny model in the engine as the engine's own does",
            2,
            cases.service_cases,
            run=engine.serve,
            judge=engine.judge_service,
            describe=cases.described_service,
        ),
    ),
    hints=(
        "Three lines: dtype = torch.int8, and two methods that call your functions.",
        "quantize(self, x) finds the scales first, then the codes, and returns the pair "
        "(codes, scales), in this order.",
    ),
)

EXERCISE = Exercise(
    id="ex08",
    name="kv_quantizer",
    title="Half the bytes, and what is left of the numbers",
    chapter="08",
    parts=(SCALES, CODES, NUMBERS, COPY, QUANTIZER),
    slot="kv_quantizer",
    hidden_points=6,
    limits=Limits(seconds=60),
)
