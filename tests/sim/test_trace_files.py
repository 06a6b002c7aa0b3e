"""Recorded traffic: there and back again, other people's headers, and lines that are no request."""

from itertools import islice
from pathlib import Path

import pytest

from minillm_serve.sim.arrivals import Arrival, Poisson, open_loop
from minillm_serve.sim.lengths import Uniform
from minillm_serve.sim.trace_files import replay, save

AZURE = {
    "time": "TIMESTAMP",
    "prompt_tokens": "ContextTokens",
    "output_tokens": "GeneratedTokens",
}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["trace.csv", "trace.jsonl"])
def test_a_saved_stream_reads_back_the_same(tmp_path: Path, name: str) -> None:
    stream = open_loop(Poisson(3.0), Uniform(1, 99), Uniform(1, 9), seed=2)
    arrivals = list(islice(stream, 50))
    assert save(arrivals, tmp_path / name) == 50
    first = arrivals[0].time
    assert list(replay(tmp_path / name)) == [
        Arrival(a.time - first, a.prompt_tokens, a.output_tokens, a.user) for a in arrivals
    ]


def test_dates_and_other_headers_are_read(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.1805900,396,109\n"
    )
    got = list(replay(write(tmp_path, "azure.csv", text), columns=AZURE))
    assert [(a.prompt_tokens, a.output_tokens) for a in got] == [(374, 44), (396, 109)]
    assert [a.time for a in got] == pytest.approx([0.0, 3.5], abs=1e-5)


def test_replaying_faster_squeezes_time_alone(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "time,prompt_tokens,output_tokens\n5,1,2\n9,3,4\n")
    assert list(replay(path, speed=2.0)) == [Arrival(0.0, 1, 2), Arrival(2.0, 3, 4)]


def test_a_trace_is_read_line_by_line(tmp_path: Path) -> None:
    """The broken third line is met only by who reads that far."""
    path = write(tmp_path, "t.csv", "time,prompt_tokens,output_tokens\n0,1,2\nx,3,4\n")
    stream = replay(path)
    assert next(stream) == Arrival(0.0, 1, 2)
    with pytest.raises(ValueError, match=r"t.csv, line 3: time is 'x', expected seconds"):
        next(stream)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "time,prompt_tokens\n0,1\n", r"line 2: no 'output_tokens' among .*`columns`"),
        ("t.csv", "time,prompt_tokens,output_tokens\n0,1\n", r"line 2: output_tokens is None"),
        ("t.csv", "time,prompt_tokens,output_tokens\n0,1.5,2\n", r"prompt_tokens is '1.5'"),
        ("t.csv", "time,prompt_tokens,output_tokens\n0,0,2\n", r"line 2: .*prompt_tokens is 0"),
        ("t.csv", "time,prompt_tokens,output_tokens\n9,1,2\n8,1,2\n", r"line 3: it lies 1 s bef"),
        ("t.csv", "time,prompt_tokens,output_tokens\nnan,1,2\n", r"line 2: "),
        ("t.jsonl", '{"time": 0, \n', r"t.jsonl, line 1: no JSON"),
        ("t.jsonl", "\n[1, 2]\n", r"t.jsonl, line 2: expected an object"),
    ],
)
def test_a_line_that_is_no_request_is_named(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        list(replay(write(tmp_path, name, text)))


def test_arguments_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"t.txt: expected a name that ends in .csv or .jsonl"):
        replay(tmp_path / "t.txt")
    with pytest.raises(ValueError, match=r"columns has \['tokens'\]"):
        replay(tmp_path / "t.csv", columns={"tokens": "n"})
    with pytest.raises(ValueError, match="speed is 0"):
        replay(tmp_path / "t.csv", speed=0)
    with pytest.raises(ValueError, match=r"t.parquet: expected"):
        save([], tmp_path / "t.parquet")
