"""The benchmarks run, and say what they measured on. (What they measure is not judged here.)"""

import importlib.util
import json

import pytest

from benchmarks import (
    kernels,
    latency,
    prefix,
    profile,
    record,
    scheduler,
    scoreboard,
    speculation,
    throughput,
)
from benchmarks.report import Comparison
from benchmarks.workloads import w1, w2
from minillm_serve.cli import main
from minillm_serve.course import techniques, trace
from minillm_serve.course.scoreboard import Scoreboard
from tests.llm.tiny import save_tiny
from tests.models.tiny import VOCAB


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A tiny model, and workloads whose ids it knows."""
    monkeypatch.setattr("benchmarks.workloads.LOWEST_ID", 3)
    monkeypatch.setattr("benchmarks.workloads.HIGHEST_ID", VOCAB - 1)
    return str(save_tiny(tmp_path / "model"))


def read(path):
    record = json.loads(path.read_text())
    assert record["stamp"]["hardware"]
    assert record["stamp"]["versions"]["torch"]
    return record


def test_the_first_workload_is_the_one_that_was_published():
    jobs = w1()
    assert len(jobs) == 64
    assert sum(len(job.prompt) for job in jobs) == 9_543
    assert sum(job.output_len for job in jobs) == 7_977


def test_the_second_workload_shares_a_prefix():
    jobs = w2()
    assert len({tuple(job.prompt[:512]) for job in jobs}) == 1
    assert len({tuple(job.prompt) for job in jobs}) == 48


def test_throughput_compares_all_systems_in_one_run(tiny, tmp_path, capsys):
    out = tmp_path / "t.json"
    options = ["--model", tiny, "--requests", "3", "--repeat", "1", "--sample", "1"]
    assert throughput.main([*options, "--output", str(out)]) == 0
    record = read(out)
    assert len(record["median"]) == 4
    assert record["ratio"]["ours"] == 1
    assert "ours is" in capsys.readouterr().out
    assert out.with_suffix(".png").stat().st_size > 1_000


def test_latency_separates_decoding_from_reading(tiny, tmp_path):
    out = tmp_path / "l.json"
    options = ["--model", tiny, "--repeat", "1", "--output-len", "8", "--prompt-len", "64"]
    assert latency.main([*options, "--output", str(out)]) == 0
    assert read(tmp_path / "l_decode.json")["unit"] == "output tok/s"
    assert read(tmp_path / "l_prefill.json")["unit"] == "prompt tok/s"


def test_quantized_weights_are_measured_beside_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.workloads.LOWEST_ID", 3)
    monkeypatch.setattr("benchmarks.workloads.HIGHEST_ID", VOCAB - 1)
    wide = str(save_tiny(tmp_path / "wide", hidden_size=64, intermediate_size=96))
    shared = ["--model", wide, "--repeat", "1", "--quantization", "int8"]
    out = tmp_path / "l.json"
    sizes = ["--output-len", "8", "--prompt-len", "64", "--output", str(out)]
    assert latency.main([*shared, "--quantization", "int4", *sizes]) == 0
    names = list(read(tmp_path / "l_decode.json")["median"])
    assert names[:3] == ["ours, int8", "ours, int4", "ours"]
    assert profile.main([*shared, "--output-len", "8"]) == 0
    assert "outside of them" in capsys.readouterr().out


def test_speculation_compares_every_drafter_there_is_with_none(tiny, tmp_path, capsys):
    out = tmp_path / "s.json"
    assert speculation.main(["--model", tiny, "--quick", "--output", str(out)]) == 0
    record = read(out)
    assert set(record["alone"]) == {"code", "summary", "open"}
    assert set(record["crowd"]) == {"1", "4"}
    for rows in (*record["alone"].values(), *record["crowd"].values()):
        assert list(rows) == [
            "no drafts", "no drafts, again", "ngram, 3", "ngram, adaptive", "early_exit, 3",
            "early_exit, adaptive",
        ]  # fmt: skip
        assert rows["no drafts"]["ratio"] == 1
        assert rows["early_exit, 3"]["drafts"] >= rows["early_exit, 3"]["accepted"] >= 0
    assert "eagle is left out" in capsys.readouterr().out
    assert out.with_suffix(".png").stat().st_size > 1_000


def test_llama_cpp_is_asked_for_before_any_model_is_loaded(tmp_path):
    with pytest.raises(SystemExit, match=r"none\.gguf: there is no such file"):
        latency.main(["--llama-cpp", str(tmp_path / "none.gguf")])
    (tmp_path / "some.gguf").touch()
    if importlib.util.find_spec("llama_cpp") is None:
        with pytest.raises(SystemExit, match="pip install llama-cpp-python"):
            latency.main(["--llama-cpp", str(tmp_path / "some.gguf")])


def test_kernels_agree_before_they_are_timed(tmp_path):
    out = tmp_path / "k.json"
    options = ["--batch", "3", "--longest", "80", "--repeat", "1", "--calls", "2"]
    assert kernels.main([*options, "--output", str(out)]) == 0
    assert set(read(out)["median"]) == {"cpu", "torch"}


def test_keys_and_values_in_8_bits_are_timed_beside_whole_ones(tmp_path):
    out = tmp_path / "k.json"
    options = ["--batch", "3", "--longest", "80", "--repeat", "1", "--calls", "2"]
    options += ["--backends", "torch", "--kv-dtypes", "auto", "int8", "fp8"]
    assert kernels.main([*options, "--output", str(out)]) == 0
    assert list(read(out)["median"]) == ["torch", "torch, KV int8", "torch, KV fp8"]


def test_a_shared_prefix_is_read_once_and_by_each_in_one_run(tmp_path):
    out = tmp_path / "k.json"
    options = ["--batch", "6", "--longest", "80", "--shared", "128", "--repeat", "1"]
    assert kernels.main([*options, "--calls", "2", "--output", str(out)]) == 0
    assert list(read(out)["median"]) == ["cpu, shared once", "cpu", "torch, shared once", "torch"]


def test_a_shared_prefix_that_fills_no_whole_blocks_is_refused(capsys):
    with pytest.raises(SystemExit):
        kernels.main(["--shared", "100"])
    assert "'100': expected a multiple of 16" in capsys.readouterr().err


def test_the_scheduler_is_timed_with_few_and_many_waiting(tmp_path):
    out = tmp_path / "s.json"
    options = ["--waiting", "1", "20", "--steps", "3", "--repeat", "1", "--policy", "priority"]
    assert scheduler.main([*options, "--output", str(out)]) == 0
    assert set(read(out)["median"]) == {"1 waiting", "20 waiting"}


def test_a_prefix_cache_is_timed_where_it_finds_nothing(tmp_path, capsys):
    out = tmp_path / "p.json"
    assert prefix.main(["--requests", "4", "--repeat", "1", "--output", str(out)]) == 0
    assert set(read(out)["median"]) == {"no cache", "hash", "radix"}
    assert "us a token for the index" in capsys.readouterr().out


def test_a_record_is_timed_within_the_step_that_it_notes(tmp_path, capsys):
    out = tmp_path / "r.json"
    assert record.main(["--running", "3", "--repeat", "1", "--output", str(out)]) == 0
    assert set(read(out)["median"]) == {"3 running, step", "3 running, record"}
    assert "its record takes" in capsys.readouterr().out


def test_a_ratio_says_how_much_faster_the_first_is():
    rates = Comparison("t", "tok/s", {"a": [4.0, 6.0, 5.0], "b": [2.0]})
    assert rates.ratio("b") == 2.5
    times = Comparison("t", "ms", {"a": [2.0], "b": [6.0]}, higher_is_better=False)
    assert times.ratio("b") == 3


@pytest.mark.model
def test_the_scoreboard_is_written_in_the_form_that_chapters_read(tmp_path, monkeypatch):
    users = trace.make_trace(short=True)[:2]
    users = [trace.User(u.arrival, u.prompt[:20], 3) for u in users]
    monkeypatch.setattr(techniques, "make_trace", lambda *, short=False: users)
    monkeypatch.setattr(scoreboard, "make_trace", lambda *, short=False: users)
    out = tmp_path / "board.json"
    assert scoreboard.main(["--output", str(out)]) == 0
    board = Scoreboard.load(out)
    assert "reserve the longest conversation" in repr(board.table())


def test_the_shell_command_lists_its_subjects(capsys):
    assert main(["bench", "--help"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("throughput", "latency", "kernels", "scheduler"))
    assert main(["bench", "nonsense"]) == 2


@pytest.mark.parametrize("options", [["--repeat", "0"], ["--batch", "-1"], ["--calls", "x"]])
def test_counts_below_one_are_refused(options, capsys):
    with pytest.raises(SystemExit):
        kernels.main(options)
    assert "expected a whole number of at least 1" in capsys.readouterr().err
