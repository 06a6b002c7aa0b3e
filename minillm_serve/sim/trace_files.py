"""Recorded traffic: arrivals from a CSV or JSON-lines file, and into one.

    time,prompt_tokens,output_tokens
    0.0,120,64
    0.8,31,256

Other headers are named by the caller. The public traces of Azure's LLM service (2023) have
`columns={"time": "TIMESTAMP", "prompt_tokens": "ContextTokens",
"output_tokens": "GeneratedTokens"}`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from minillm_serve.sim.arrivals import Arrival

FIELDS = ("time", "prompt_tokens", "output_tokens", "user")
_KINDS = (".csv", ".jsonl")


def replay(
    path: Path | str, *, columns: Mapping[str, str] | None = None, speed: float = 1.0
) -> Iterator[Arrival]:
    """Read a trace, line by line; the first request arrives at 0 s.

    Args:
        path: a `.csv` file with a header, or a `.jsonl` file with an object a line.
        columns: field of `Arrival` -> its name in the file, where that is another. Times are
            seconds, or dates in ISO 8601. `user` may be missing.
        speed: 2 replays twice as fast.

    Raises:
        ValueError: another kind of file, unknown fields, a speed that is not positive; and, while
            reading, a line that is no request or lies before the one above it. The message names
            file and line.
        OSError: it cannot be read.
    """
    file, names = Path(path), {name: name for name in FIELDS} | dict(columns or {})
    if file.suffix not in _KINDS:
        raise ValueError(f"{file.name}: expected a name that ends in {' or '.join(_KINDS)}")
    if unknown := set(names) - set(FIELDS):
        raise ValueError(f"columns has {sorted(unknown)}: an Arrival has {', '.join(FIELDS)}")
    if not 0 < speed < float("inf"):
        raise ValueError(f"speed is {speed!r}: give a number above 0")
    return _replay(file, names, speed)


def _replay(file: Path, names: Mapping[str, str], speed: float) -> Iterator[Arrival]:
    first = last = None
    for number, row in _rows(file):
        where = f"{file.name}, line {number}"
        moment = _read(row, names["time"], _seconds, "seconds or a date in ISO 8601", where)
        prompt, output = (_read(row, names[f], _whole, "tokens", where) for f in FIELDS[1:3])
        user = _read(row, names["user"], _whole, "a number", where) if names["user"] in row else 0
        first = moment if first is None else first
        if last is not None and moment < last:
            raise ValueError(f"{where}: it lies {last - moment:g} s before the line above it; sort")
        last = moment
        try:
            yield Arrival((moment - first) / speed, prompt, output, user)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


def save(arrivals: Iterable[Arrival], path: Path | str) -> int:
    """Write a trace that `replay` reads; `arrivals` must end.

    Returns:
        How many were written.

    Raises:
        ValueError: the name ends in something else than `.csv` or `.jsonl`.
    """
    file, count = Path(path), 0
    if file.suffix not in _KINDS:
        raise ValueError(f"{file.name}: expected a name that ends in {' or '.join(_KINDS)}")
    with file.open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, FIELDS, lineterminator="\n")
        if file.suffix == ".csv":
            table.writeheader()
        for arrival in arrivals:
            count += 1
            if file.suffix == ".csv":
                table.writerow(asdict(arrival))
            else:
                out.write(json.dumps(asdict(arrival)) + "\n")
    return count


def _rows(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """`(line number, row)`, from 1; empty lines are passed over."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        if file.suffix == ".csv":
            table = csv.DictReader(lines)
            for row in table:
                yield table.line_num, row
            return
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{file.name}, line {number}: no JSON ({error.msg})") from None
            if not isinstance(row, dict):
                raise ValueError(f"{file.name}, line {number}: expected an object, not {line!r}")
            yield number, row


def _read(
    row: Mapping[str, Any], name: str, convert: Callable[[Any], Any], expected: str, where: str
) -> Any:
    if name not in row:
        raise ValueError(f"{where}: no {name!r} among {sorted(map(str, row))}; see `columns`")
    try:
        return convert(row[name])
    except (ValueError, TypeError):
        raise ValueError(f"{where}: {name} is {row[name]!r}, expected {expected}") from None


def _seconds(value: Any) -> float:
    """Seconds from a number, or from a date."""
    try:
        return float(value)
    except ValueError:
        pass
    date = datetime.fromisoformat(value)
    # A date without a zone is taken for UTC: local time would jump when the clocks change.
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _whole(value: Any) -> int:
    number = float(value)
    if not number.is_integer():
        raise ValueError
    return int(number)
