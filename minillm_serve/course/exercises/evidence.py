"""Evidence as plain data: what may come back from the learner's process, and how.

Nothing is unpickled that a learner's process wrote: evidence travels as JSON, and is rebuilt from a
fixed list of types. The same is done inside a notebook, so that what passes there passes when it is
graded: an object whose `__eq__` always says yes does not survive the journey.
"""

from __future__ import annotations

import base64
import json
import math
import numbers
import traceback
from typing import Any

import numpy as np

from minillm_serve.course.exercises.exercise import Opaque, Raised

#: The name that learners' cells are compiled under, by which their lines are told from ours.
CELL_FILE = "<your notebook, cell {}>"
_CELL_FILES = ("<your notebook", "ipykernel_")
_REPR_LIMIT = 200


class EvidenceError(ValueError):
    """A message of the learner's process is not evidence."""


def encode(value: Any) -> Any:
    """Plain data -> what JSON can carry. What is no plain data becomes an `Opaque`."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, numbers.Integral):
        return {"int": str(int(value))}  # JSON readers may round large ones
    if isinstance(value, float | np.floating):
        return {"float": float(value).hex() if math.isfinite(value) else repr(float(value))}
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return {"list": [encode(item) for item in value]}
    if isinstance(value, set | frozenset):
        return {"list": [encode(item) for item in sorted(value, key=repr)]}
    if isinstance(value, dict) and all(isinstance(key, str | int) for key in value):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, Raised):
        return {"raised": [value.type, value.message, value.line]}
    array = _as_array(value)
    if array is not None:
        data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
        return {"array": [array.dtype.str, list(array.shape), data]}
    return {"opaque": [type(value).__name__, shortened(repr(value))]}


def _as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """A numpy array, or the copy of a torch tensor (bfloat16 as float32); None if neither."""
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        return np.asarray(value)
    return None


def decode(data: Any) -> Any:
    """The data that `encode` was given, tuples and sets as lists, tensors as arrays.

    Raises:
        EvidenceError: it was not made by `encode`.
    """
    if data is None or isinstance(data, bool | str):
        return data
    try:
        ((kind, value),) = data.items()
        return _DECODERS[kind](value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EvidenceError(f"not evidence: {shortened(repr(data))}") from error


def _array(value: Any) -> np.ndarray[Any, Any]:
    dtype, shape, data = np.dtype(str(value[0])), [int(n) for n in value[1]], value[2]
    if dtype.kind not in "biuf":
        raise ValueError(f"arrays of {dtype} carry no numbers")
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape)


_DECODERS: dict[str, Any] = {
    "int": int,
    "float": lambda text: float.fromhex(text),
    "bytes": base64.b64decode,
    "list": lambda items: [decode(item) for item in items],
    "dict": lambda items: {decode(key): decode(item) for key, item in items},
    "raised": lambda value: Raised(str(value[0]), str(value[1]), int(value[2])),
    "array": _array,
    "opaque": lambda value: Opaque(str(value[0]), str(value[1])),
}


def carried(value: Any) -> Any:
    """Evidence as it looks after the journey."""
    return decode(json.loads(json.dumps(encode(value))))


def raised(error: BaseException) -> Raised:
    """An exception of the learner's code as evidence, with the line of their cell."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [
        frame.lineno or 0 for frame in frames if any(name in frame.filename for name in _CELL_FILES)
    ]
    return Raised(type(error).__name__, str(error), lines[-1] if lines else 0)


def shortened(text: str) -> str:
    """At most 200 characters of a text."""
    return text if len(text) <= _REPR_LIMIT else text[: _REPR_LIMIT - 1] + "…"
