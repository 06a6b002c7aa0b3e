"""The GPU check, rehearsed without a GPU: all its logic, tiny shapes, interpreted kernels."""

import json
import subprocess
import sys

import pytest
import torch

from benchmarks import gpu_check
from benchmarks.gpu import kernels, suite
from benchmarks.gpu.case import Goal, Work
from benchmarks.gpu.cases import CASES
from benchmarks.gpu.children import MARK, run_child
from benchmarks.gpu.report import Report
from benchmarks.gpu.roofs import Roof, find_card, find_roof
from benchmarks.gpu.session import Session

CPU = torch.device("cpu")


@pytest.fixture
def report():
    return Report({"hardware": "a rehearsal"})


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_a_dry_run_goes_through_every_section_and_nothing_fails(tmp_path, capsys):
    out = tmp_path / "gpu.json"
    assert gpu_check.main(["--dry-run", "--output", str(out)]) == 0
    record = json.loads(out.read_text())
    names = {entry["name"] for entry in record["entries"]}
    assert {entry["status"] for entry in record["entries"]} == {"ok"}
    assert all(any(name.startswith(case.name) for name in names) for case in CASES)
    assert "tiny (small), many users: transformers continuous batching" in names
    assert "tiny (large), one user: ours" in names
    assert record["stamp"]["dry_run"] is True
    assert record["stamp"]["versions"]["torch"] == torch.__version__
    # An interpreted kernel's time says nothing, so none is told.
    times = {"ms", "tokens_per_s", "faster_than"}
    assert not any(times & entry.keys() for entry in record["entries"])
    table = out.with_suffix(".md").read_text()
    assert all(f"## {section}" in table for section in ("correct", "fast", "engine"))
    assert "as transformers': ours, ours, plain loop" in table
    assert "[fast] copy_blocks" in capsys.readouterr().out


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert "torch sees no GPU: try --dry-run" in capsys.readouterr().err


def test_an_item_that_fails_stops_no_other(report):
    session = Session(CPU, True, report, 100)
    session.attempt("s", "breaks", lambda: {}["nothing"])
    session.attempt("s", "works", lambda: {"ms": 1.5, "remarks": ["fine"]})
    session.attempt("s", "is slow", lambda: {"status": "missed", "ms": 9.0})
    broken, works, slow = report.entries
    assert broken["status"] == "failed"
    assert broken["why"].startswith("KeyError: 'nothing' (<lambda>, line")
    assert (works["status"], works["ms"], slow["status"]) == ("ok", 1.5, "missed")
    assert report.num_failed == 1


def test_what_there_is_no_time_for_is_skipped_and_said(report):
    now = [0.0]
    session = Session(CPU, True, report, 10, clock=lambda: now[0])
    session.attempt("s", "in time", lambda: now.__setitem__(0, 11.0) or {})
    session.attempt("s", "too late", lambda: {})
    assert [entry["status"] for entry in report.entries] == ["ok", "skipped"]
    assert report.entries[1]["why"] == "out of time"


def test_every_entry_is_on_disk_as_soon_as_it_is_made(tmp_path):
    report = Report({"hardware": "x"}, tmp_path / "deep" / "r.json")
    report.add("fast", "one", "ok", ms=1.0, faster_than={"SDPA": 2.0})
    assert len(json.loads(report.path.read_text())["entries"]) == 1
    report.add("fast", "two", "failed", why="a | b\nc")
    assert len(json.loads(report.path.read_text())["entries"]) == 2
    lines = report.path.with_suffix(".md").read_text().splitlines()
    assert "| one | ok | 1 | 2.00 x SDPA |  |" in lines
    assert "| two | failed |  |  | a / b c |" in lines


def child(code):
    return [sys.executable, "-c", code]


def tell(name):
    entry = {"section": "s", "name": name, "status": "ok"}
    return f"print({MARK + json.dumps(entry)!r}, flush=True)\n"


def test_a_process_that_crashes_leaves_what_it_had(report, capsys):
    run_child(child(tell("one") + "print('hello')\nimport os; os._exit(11)"), "s", 60, report)
    assert [entry["name"] for entry in report.entries] == ["one", "the section"]
    assert report.entries[1]["why"] == "its process ended with 11"
    assert "hello" in capsys.readouterr().out


def test_a_process_that_hangs_is_ended(report):
    run_child(child(tell("one") + "import time; time.sleep(600)"), "s", 8, report)
    assert [entry["status"] for entry in report.entries] == ["ok", "failed"]
    assert report.entries[1]["why"] == "stopped after 8 s"


def test_a_section_runs_in_a_process_of_its_own(tmp_path):
    out = tmp_path / "gpu.json"
    options = ["--dry-run", "--isolate", "--sections", "correct", "--output", str(out)]
    assert gpu_check.main(options) == 0
    entries = json.loads(out.read_text())["entries"]
    assert sum(entry["section"] == "correct" for entry in entries) == len(CASES) + 1


def test_the_kernels_own_tests_are_run_by_their_own_rules(tmp_path):
    good, bad = tmp_path / "test_good.py", tmp_path / "test_bad.py"
    good.write_text("def test_it(): pass")
    bad.write_text("def test_it(): assert 1 == 2")
    passed = suite.run_suite(100, (*suite.PYTEST, *suite.OPTIONS, str(good)))
    assert passed["remarks"][0].startswith("1 passed")
    with pytest.raises(ArithmeticError, match=r"FAILED .*::test_it - assert 1 == 2"):
        suite.run_suite(100, (*suite.PYTEST, *suite.OPTIONS, str(bad)))


def test_tests_that_cannot_be_run_here_or_in_time_are_skipped():
    assert suite.run_suite(9, needs="no_such_module")["why"] == "no_such_module is not installed"
    slow = suite.run_suite(1, child("import time; time.sleep(60)"))
    assert slow == {"status": "skipped", "why": "not done after 1 s"}


def test_started_as_a_file_it_hides_no_module_of_others():
    """benchmarks/ holds a kernels.py and a profile.py, and so do others under the same names."""
    shown = "import runpy, sys; sys.argv = ['x', '--help']; sys.path.insert(0, 'benchmarks')\n"
    shown += "try: runpy.run_path('benchmarks/gpu_check.py', run_name='__main__')\n"
    shown += "except SystemExit: pass\n"
    shown += "import profile; print(profile.__file__)"
    done = subprocess.run(child(shown), cwd=suite.ROOT, capture_output=True, text=True)
    assert "benchmarks" not in done.stdout.splitlines()[-1], done.stderr


def work(ours, exact, **options):
    return Work(ours=ours, exact=exact, **options)


def test_a_wrong_kernel_is_caught():
    right = torch.tensor([1.0, 2.0])
    assert kernels._compare(work(lambda: right, right.double), 2)["error"] == 0
    for wrong in (torch.tensor([1.0, 2.001]), torch.tensor([1.0, torch.nan])):
        with pytest.raises(ArithmeticError, match="off by"):
            kernels._compare(work(lambda wrong=wrong: wrong, right.double), 2)


def test_a_kernel_that_gives_other_numbers_at_times_is_caught_b136():
    turns = iter(range(9))
    ours = lambda: torch.tensor([1.0 if next(turns) < 2 else 1.0000001])  # noqa: E731
    with pytest.raises(ArithmeticError, match="run 3 gave other numbers than run 1"):
        kernels._compare(work(ours, lambda: torch.ones(1).double()), 5)


def test_wrong_tokens_are_counted():
    want = torch.arange(100)
    few, many = want.clone(), want.clone()
    few[0], many[:5] = 7, 7
    assert kernels._compare(work(lambda: few, lambda: want), 1)["error"] == 0.01
    with pytest.raises(ArithmeticError, match=r"off by 0\.05"):
        kernels._compare(work(lambda: many, lambda: want), 1)


def test_what_a_kernel_changes_in_place_is_put_back_before_each_run():
    state = torch.zeros(1)
    ours = lambda: state.add_(1)  # noqa: E731
    changing = work(ours, lambda: torch.ones(1).double(), reset=lambda: state.zero_())
    assert kernels._compare(changing, 3)["error"] == 0


def test_goals_are_shares_of_the_roof_or_multiples_of_a_peer():
    assert str(Goal(share=0.7)) == "70% of roof"
    assert Goal(share=0.7).reached(0.71, {})
    assert not Goal(share=0.7).reached(0.69, {})
    goal = Goal(times=1.5, peer="torch")
    assert str(goal) == "1.5 x torch"
    assert goal.reached(0.0, {"torch": 1.6})
    assert not goal.reached(0.0, {"torch": 1.4})
    assert goal.reached(0.0, {})


def test_a_measured_race_tells_time_floor_and_peers(report, monkeypatch):
    times = iter([2.0, 3.0, 4.0])
    monkeypatch.setattr(kernels, "milliseconds", lambda run, device: next(times))
    made = work(lambda: None, lambda: None, num_bytes=1e9, flops=1e9)
    peers = lambda: {"slow": lambda: 0, "slower": lambda: 0}  # noqa: E731
    made = Work(made.ours, made.exact, peers, num_bytes=1e9, flops=1e9)
    case = kernels.Case("k", "8k tokens", lambda *_, **__: made, {}, ({},), Goal(share=0.6))
    session = Session(CPU, False, report, 100)
    figures = kernels._race(session, case, Roof("r", bytes_per_s=1e12, flops_per_s=1e15))
    assert figures["faster_than"] == {"slow": 1.5, "slower": 2.0}
    assert (figures["ms"], figures["floor_ms"], figures["roof_share"]) == (2.0, 1.0, 0.5)
    assert figures["status"] == "missed"


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA H100 PCIe", None),
    ],
)
def test_cards_are_known_by_their_names(name, card):
    found = find_card(name)
    assert (found.name if found else None) == card


def test_a_device_without_a_datasheet_is_measured():
    roof = find_roof(CPU)
    assert roof.source == "measured on CPU"
    assert min(roof.bytes_per_s, roof.flops_per_s) > 0


def test_sections_fit_into_the_time_of_the_whole():
    assert sum(section.seconds for section in gpu_check.SECTIONS.values()) < gpu_check.TOTAL_SECONDS
    assert gpu_check.TOTAL_SECONDS <= 6 * 60
