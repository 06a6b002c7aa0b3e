"""What ex08 should give, and what a wrong result gives away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minillm_serve.course.exercises.compare import first_difference
from minillm_serve.course.exercises.exercise import Case, CheckFailed, Opaque

Numbers = np.ndarray[Any, Any]
Mistake = Callable[[Case], Numbers]
LARGEST = 127
RTOL = 1e-5


def rows_of(case: Case) -> Numbers:
    """The case's x in float64."""
    return np.asarray(case["x"].double().numpy())


def array(
    got: Any, shape: tuple[int, ...], dtype: str, what: str, said: Mapping[str, str]
) -> Numbers:
    """Evidence as an array of this shape and dtype.

    Args:
        got: evidence.
        shape: that is expected.
        dtype: likewise.
        what: "scales", "codes" or "numbers".
        said: another dtype -> what is wrong with it.

    Raises:
        CheckFailed: it is none.
    """
    if got is None:
        raise CheckFailed("it returned nothing: is there a `return`?")
    if not isinstance(got, np.ndarray):
        kind = got.type if isinstance(got, Opaque) else type(got).__name__
        raise CheckFailed(f"it returned a {kind}, and should return a tensor of {what}", got=got)
    if got.shape != shape:
        hint = ""
        if got.shape == (*shape, 1):
            hint = ": the last dimension is gone once it has been looked through (no keepdim)"
        elif got.ndim == 0 or got.size == 1:
            hint = ": one for all is not enough, each token and each head has its own"
        raise CheckFailed(
            f"the shape of the {what} is wrong{hint}", expected=list(shape), got=list(got.shape)
        )
    if str(got.dtype) != dtype:
        more = f": {said[str(got.dtype)]}" if str(got.dtype) in said else ""
        raise CheckFailed(
            f"the dtype of the {what} is wrong{more}", expected=dtype, got=str(got.dtype)
        )
    return got


def compare(
    case: Case, wanted: Numbers, got: Numbers, mistakes: Mapping[str, Mistake], what: str
) -> None:
    """Two arrays, and if they differ, the mistake that leads to the second.

    Raises:
        CheckFailed: they differ.
    """
    found = first_difference(wanted, got, rtol=RTOL)
    if found is None:
        return
    message = f"other {what} were expected"
    with np.errstate(all="ignore"):
        for said, mistake in mistakes.items():
            wrong = np.broadcast_to(mistake(case), wanted.shape)
            if wanted.dtype == np.int8:
                wrong = wrong.astype(np.int64).astype(np.int8)
            if np.allclose(wrong, got, rtol=1e-3, atol=0, equal_nan=True):
                message = said
                break
    raise CheckFailed(message, index=found.index, expected=found.expected, got=found.got)


# Scales.

_HALF = (
    "float16 ends at 65504 and has no number below 6e-8, and it keeps 3 digits only. Whatever the "
    "model computes in, keep scales in float32: they are 4 bytes for D codes"
)
SCALE_DTYPES = {"float16": _HALF, "float64": "x.float() first; 4 bytes a scale are enough"}


def scales(case: Case) -> Numbers:
    """Largest magnitude / 127, a token and head."""
    return np.abs(rows_of(case)).max(-1) / LARGEST


_SCALES: dict[str, Mistake] = {
    "that is one scale for all tokens and heads: the largest of them takes the codes from all "
    "others (a small token would be all zeros)": lambda c: np.asarray(scales(c).max()),
    "that is one scale a token, for all its heads. One head may be a hundred times as large as "
    "another": lambda c: scales(c).max(1, keepdims=True),
    "that is one scale a head, for all tokens of the step: then what is stored of a token hangs "
    "on who else is in its batch": lambda c: scales(c).max(0, keepdims=True),
    "that is the largest number, and a negative one may be larger: take magnitudes, x.abs()": (
        lambda c: rows_of(c).max(-1) / LARGEST
    ),
    "that is the largest magnitude itself. A scale is what one step of the code is worth: there "
    "are 127 steps": lambda c: scales(c) * LARGEST,
    "divided by 128: then the largest number would get the code 128, and int8 ends at 127": (
        lambda c: scales(c) * LARGEST / 128
    ),
    "divided by 255: codes have a sign here, so there are 127 steps to each side of 0": (
        lambda c: scales(c) * LARGEST / 255
    ),
    "that is the span from the lowest to the highest, over 255 codes. Then 0 needs a code of its "
    "own, a zero point, which nobody keeps: a number is code * scale, so that 0 is 0": (
        lambda c: np.ptp(rows_of(c), -1) / 255
    ),
    "that is the other way round: 127 / largest. The scale is what codes are multiplied by": (
        lambda c: 1 / scales(c)
    ),
    "that is the mean magnitude, and not the largest: whatever is above it has no code": (
        lambda c: np.abs(rows_of(c)).mean(-1) / LARGEST
    ),
    "this goes by the standard deviation; whatever is above it has no code": (
        lambda c: rows_of(c).std(-1, ddof=1) / LARGEST
    ),
}


def judge_scales(case: Case, got: Any) -> None:
    """Compares scales.

    Raises:
        CheckFailed: with what was computed instead.
    """
    wanted = scales(case)
    got = array(got, wanted.shape, "float32", "scales", SCALE_DTYPES)
    if np.isnan(got).any():
        raise CheckFailed("a scale is NaN: a row of zeros has the scale 0", got=got)
    zero = wanted == 0
    if (got[zero] != 0).any():
        raise CheckFailed(
            "a row of zeros has the scale 0. (A small number in its place would do no harm here, "
            "and much where a model's numbers are as small)",
            expected=0.0,
            got=float(got[zero].max()),
        )
    small = (~zero) & (got == 0)
    if small.any():
        raise CheckFailed(
            "a scale is 0, and its row is not: the row is small, and would come back as zeros",
            expected=float(wanted[small][0]),
            got=0.0,
        )
    compare(case, wanted, got, _SCALES, "scales")


# Codes.

CODE_DTYPES = {
    "uint8": "these have no sign; signed codes keep 0 at 0 without a zero point",
    "float32": "round, then .to(torch.int8)",
    "int16": "that is 2 bytes a number, and the point is to have 1",
    "int32": "that is 4 bytes a number, as many as before",
    "int64": "that is 8 bytes a number, more than before",
}


def codes(case: Case) -> Numbers:
    """The nearest whole number of steps; 0 where a step is 0."""
    return steps_of(case).round().astype(np.int8)


def steps_of(case: Case) -> Numbers:
    """x in steps of its row's scale, in float64."""
    step = case["scales"].double().numpy()[..., None]
    return np.asarray(rows_of(case) / np.where(step > 0, step, 1))


# What learners' code makes of it: in float32, and what is beyond a byte wraps round.


def _x(case: Case) -> Numbers:
    return np.asarray(case["x"].numpy())


def _step(case: Case) -> Numbers:
    step = case["scales"].numpy()[..., None]
    return np.where(step > 0, step, np.float32(1))


def _rough(case: Case) -> Numbers:
    return np.asarray(_x(case) / _step(case))


_CODES: dict[str, Mistake] = {
    "numbers are cut off towards 0, as .to(torch.int8) does by itself. So all magnitudes shrink, "
    "by half a step on average, and every score of attention with them: .round() first": (
        lambda c: np.trunc(_rough(c))
    ),
    "numbers are rounded down. Each error is small, but all have one sign, and a sum over many "
    "tokens adds them up: round to the nearest": lambda c: np.floor(_rough(c)),
    "numbers are rounded up: round to the nearest": lambda c: np.ceil(_rough(c)),
    "a half is added before it is cut off: that is right above 0, and wrong below it": (
        lambda c: np.trunc(_rough(c) + 0.5)
    ),
    "numbers are rounded before they are divided: round what is left after the division": (
        lambda c: np.trunc(_x(c).round() / np.where(_step(c) > 0, _step(c), 1))
    ),
    "x is multiplied by its scale, and should be divided by it": (
        lambda c: (_x(c) * _step(c)).round()
    ),
    "the codes are counted from the row's lowest number: a zero point that nobody keeps. A number "
    "is code * scale": lambda c: ((_x(c) - _x(c).min(-1, keepdims=True)) / _step(c)).round(),
    "all rows go by the scale of the first": (
        lambda c: (_x(c) / c["scales"].numpy()[:1, :1, None]).round().clip(-128, 127)
    ),
}


def _scale(case: Case) -> Numbers:
    return np.asarray(case["scales"].double().numpy()[..., None])


def run_codes(answer: Any, case: Case) -> dict[str, Any]:
    """The learner's side: the codes, and the first operation that made a NaN."""
    from minillm_serve.runtime.kv_conformance import NanWatch

    with NanWatch() as watch:
        found = answer(case["x"], case["scales"])
    return {"codes": found, "nan": watch.operation}


def judge_codes(case: Case, got: Any) -> None:
    """Compares codes; NaN on the way is wrong even if the codes are right.

    Raises:
        CheckFailed: with what was computed instead.
    """
    if not isinstance(got, dict) or "codes" not in got:
        raise CheckFailed("the evidence is not what was kept")
    wanted = codes(case)
    found = array(got["codes"], wanted.shape, "int8", "codes", CODE_DTYPES)
    no_nan(got)
    zero = np.broadcast_to(_scale(case) == 0, wanted.shape)
    if (found[zero] != 0).any():
        raise CheckFailed(
            "the codes of a row of zeros are zeros", expected=0, got=int(found[zero][0])
        )
    compare(case, wanted, found, _CODES, "codes")


def no_nan(got: dict[str, Any]) -> None:
    """Refuses evidence of a NaN on the way.

    Raises:
        CheckFailed: there was one.
    """
    if got.get("nan"):
        raise CheckFailed(
            f"a row of zeros makes NaN, by {got['nan']}: its scale is 0, and 0 / 0 is no number. "
            "That NaN becomes the code 0 on this machine is luck; elsewhere it is another code. "
            "Divide by 1 where the scale is 0"
        )


# Numbers.


def numbers(case: Case) -> Numbers:
    """code * scale in float32."""
    codes_, scales_ = case["codes"].numpy().astype(np.float32), case["scales"].numpy()
    return np.asarray(codes_ * scales_[..., None])


_NUMBERS: dict[str, Mistake] = {
    "these are the codes: each is worth a scale": lambda c: c["codes"].numpy().astype(float),
    "codes are divided by their scale here, and should be multiplied": (
        lambda c: c["codes"].numpy() / c["scales"].numpy()[..., None]
    ),
    "the products wrapped round: int8 ends at 127. Make floats of the codes first": (
        lambda c: (
            (c["codes"].numpy() * c["scales"].numpy()[..., None]).astype(np.int8).astype(float)
        )
    ),
    "a zero point of 128 was taken off; codes have a sign already": (
        lambda c: (c["codes"].numpy().astype(float) - 128) * c["scales"].numpy()[..., None]
    ),
}


def judge_numbers(case: Case, got: Any) -> None:
    """Compares numbers.

    Raises:
        CheckFailed: with what was computed instead.
    """
    wanted = numbers(case)
    said = {"int8": "codes are whole, numbers are not", "float16": "float32, as scales are"}
    compare(case, wanted, array(got, wanted.shape, "float32", "numbers", said), _NUMBERS, "numbers")
