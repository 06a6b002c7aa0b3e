"""ex08's quantizer as a whole: there and back, errors, and the company of other tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from minillm_serve.course.exercises.answers_ex08 import (
    CODE_DTYPES,
    LARGEST,
    SCALE_DTYPES,
    Numbers,
    array,
    no_nan,
    rows_of,
)
from minillm_serve.course.exercises.blocks_ex08 import same
from minillm_serve.course.exercises.exercise import Case, CheckFailed


def run_quantizer(answer: Any, case: Case) -> dict[str, Any]:
    """The learner's side: a round trip, and the same for the first token alone."""
    from minillm_serve.runtime.kv_conformance import NanWatch

    quantizer = answer()
    with NanWatch() as watch:
        pair = quantizer.quantize(case["x"])
    found: dict[str, Any] = {
        "dtype": str(getattr(quantizer, "dtype", None)),
        "nan": watch.operation,
    }
    if not isinstance(pair, tuple) or len(pair) != 2:
        return {**found, "pair": type(pair).__name__}
    alone = quantizer.quantize(case["x"][:1])
    return {
        **found,
        "codes": pair[0],
        "scales": pair[1],
        "alone": list(alone),
        "back": quantizer.dequantize(*pair),
    }


def _trip(case: Case, got: Any) -> tuple[Numbers, Numbers]:
    if not isinstance(got, dict) or "dtype" not in got:
        raise CheckFailed("the evidence is not what was kept")
    if got["dtype"] != "torch.int8":
        raise CheckFailed(
            "the class says which codes it makes: dtype = torch.int8 in its body",
            expected="torch.int8",
            got=got["dtype"],
        )
    if "pair" in got:
        raise CheckFailed(f"quantize returned a {got['pair']}, and should return (codes, scales)")
    shape = tuple(case["x"].shape)
    found = array(got.get("codes"), shape, "int8", "codes", CODE_DTYPES)
    steps = array(got.get("scales"), shape[:-1], "float32", "scales", SCALE_DTYPES)
    no_nan(got)
    back = array(got.get("back"), shape, "float32", "numbers", {})
    with np.errstate(all="ignore"):
        read = found.astype(np.float32) * steps[..., None]
    if not np.allclose(read, back, rtol=1e-5, atol=0):
        raise CheckFailed(
            "dequantize gives something else than code * scale. The attention kernels multiply for "
            "themselves, and know of nothing else: no zero point, no correction",
            expected=float(read[np.unravel_index(np.abs(read - back).argmax(), shape)]),
            got=float(back[np.unravel_index(np.abs(read - back).argmax(), shape)]),
        )
    return read.astype(float), steps.astype(float)


def judge_trip(case: Case, got: Any) -> None:
    """No number is further off than half a step of its own row.

    Raises:
        CheckFailed: with the number that is, and why.
    """
    read, steps = _trip(case, got)
    x = rows_of(case)
    step = np.abs(x).max(-1, keepdims=True) / LARGEST
    off = np.abs(read - x) > 0.5 * 1.01 * step
    if not off.any():
        return
    place = tuple(int(i) for i in np.argwhere(off)[0])
    where = "".join(f"[{i}]" for i in place)
    why = f"{case['kind']}: a number is off by more than half a step of its own row"
    if np.ptp(steps) == 0 and np.ptp(np.abs(x).max(-1)) > 0:
        why += ". All rows have one scale: the smaller ones get what is left of the codes"
    elif (np.ptp(steps, axis=1) == 0).all() and np.ptp(np.abs(x).max(-1), axis=1).any():
        why += ". All heads of a token have one scale"
    raise CheckFailed(why, index=where, expected=float(x[place]), got=float(read[place]))


def judge_bias(case: Case, got: Any) -> None:
    """Errors lean to no side.

    Raises:
        CheckFailed: they do.
    """
    read, _ = _trip(case, got)
    x = rows_of(case)
    error = (read - x) / (np.abs(x).max(-1, keepdims=True) / LARGEST)
    for said, lean in (("down or up", error), ("towards 0 or away from it", error * np.sign(x))):
        if abs(lean.mean()) > 0.05:
            raise CheckFailed(
                f"errors lean to one side, {said}: {lean.mean():+.2f} of a step on average, over "
                f"{x.size:,} numbers. Rounding to the nearest gives 0",
                expected="about 0",
                got=round(float(lean.mean()), 3),
            )


def judge_company(case: Case, got: Any) -> None:
    """A token is stored the same alone and in company.

    Raises:
        CheckFailed: it is not.
    """
    _trip(case, got)
    codes_, steps = got["alone"]
    if not (same(got["codes"][:1], codes_) and same(got["scales"][:1], steps)):
        raise CheckFailed(
            f"the first token is stored otherwise where {case['kind']} are stored in the same "
            "step. Who is in a batch is chance: one request would get other answers on another day"
        )
