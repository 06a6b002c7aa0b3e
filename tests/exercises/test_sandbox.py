"""What a learner's code may do to its grader: nothing."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from minillm_serve.course.exercises.exercise import Exercise, Limits
from minillm_serve.course.exercises.grading import Grade, grade
from tests.exercises.demo import EXERCISE, RIGHT, STUB, notebook

SECRET = "4711-0815"


def graded(*cells: str, exercise: Exercise = EXERCISE) -> Grade:
    return grade(exercise, notebook(*cells), SECRET)


def impatient(seconds: float = 3) -> Exercise:
    return replace(EXERCISE, limits=Limits(seconds=seconds, memory=EXERCISE.limits.memory))


def test_right_answers_score_full_and_stubs_nothing() -> None:
    assert (graded(RIGHT).earned, graded(RIGHT).possible) == (8, 8)
    assert graded(STUB).earned == 0
    assert graded(STUB).untouched
    assert graded("").earned == 0


def test_half_an_answer_earns_its_part_and_its_share_of_the_hidden_points() -> None:
    half = graded(RIGHT, STUB.split("\n\n")[1])
    assert [part.earned for part in half.parts] == [3, 0]
    assert half.hidden == 3  # three of four points, on other numbers


#: Answers that end, or never end, the process that they run in.
ENDINGS = {
    "os._exit(0) in a cell": "import os\nos._exit(0)",
    "SystemExit in a cell": "raise SystemExit",
    "SystemExit in the answer": "def double(x):\n    raise SystemExit(0)",
    "os._exit(0) in the answer": "import os\ndef double(x):\n    os._exit(0)",
    "os._exit(0) at the last check": "import os\ndef triple(x):\n    os._exit(0)",
    "a killed process": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "a segmentation fault": "import ctypes\nctypes.string_at(0)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
}


@pytest.mark.parametrize("how", ENDINGS)
def test_b149_an_answer_that_ends_the_process_scores_nothing_and_says_so(how: str) -> None:
    found = graded(RIGHT, ENDINGS[how])
    assert (found.earned, found.hidden) == (0, 0)
    assert "ended the whole process before the checks were through" in found.problem
    assert found.problem in found.scores()[-1].text


#: Answers that would never end.
LOOPS = {
    "in a cell": "while True: pass",
    "in the answer": "def double(x):\n    while True: pass",
    "while catching everything": """
def double(x):
    while True:
        try:
            while True: pass
        except BaseException:
            pass
""",
    "in a process of its own": """
import subprocess, sys
subprocess.run([sys.executable, "-c", "while True: pass"])
""",
}


@pytest.mark.parametrize("where", LOOPS)
def test_b149_an_endless_loop_is_stopped_and_scores_nothing(where: str) -> None:
    found = graded(RIGHT, LOOPS[where], exercise=impatient())
    assert found.earned == 0
    assert found.problem.startswith("the code was stopped after 3 s")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_b149_nothing_that_the_answer_started_is_left_running(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
open({str(note)!r}, "w").write(str(child.pid))
"""
    assert graded(RIGHT, child).earned == 8
    pid = int(note.read_text())
    looks = 0
    while (left := is_running(pid)) and looks < 100:
        looks += 1
        time.sleep(0.05)
    if left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "the answer's own process still runs"


def is_running(pid: int) -> bool:
    """Whether it is there, and no zombie that only waits to be counted."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_b149_an_answer_that_takes_all_memory_fails_its_check_and_no_other() -> None:
    found = graded(RIGHT, "def double(x):\n    return len(bytearray(10**9)) and 2 * x")
    assert [part.earned for part in found.parts] == [0, 1]
    assert "it raised MemoryError" in found.scores()[0].text


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_b149_an_answer_that_kills_what_it_was_forked_from_hurts_nobody_else() -> None:
    found = graded(
        RIGHT, "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass"
    )
    assert (found.earned, found.hidden) == (0, 0)
    assert "ended the whole process before the checks were through" in found.problem
    assert graded(RIGHT).earned == 8


def test_an_answer_finds_nothing_of_the_one_before_and_the_environment_of_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave = "import json, os\njson.left = 1\nos.environ['LEFT'] = '1'\nopen('left', 'w').write('1')"
    look = "import json, os\nprint(hasattr(json, 'left'), 'LEFT' in os.environ, os.listdir('.'))"
    assert graded(RIGHT, leave).earned == 8
    assert graded(RIGHT, look).output == "False False []\n"
    monkeypatch.setenv("TOLD", "just now")
    assert graded(RIGHT, "import os\nprint(os.environ['TOLD'])").output == "just now\n"


def test_what_lies_where_the_grader_stands_is_no_module_of_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets_of_the_class.py").write_text("ANSWERS = 42")
    monkeypatch.chdir(tmp_path)
    found = graded(RIGHT, "import secrets_of_the_class")
    assert found.cell_errors == (
        "ModuleNotFoundError: No module named 'secrets_of_the_class' (code cell 2)",
    )


def test_a_flood_of_output_is_cut_and_the_end_of_it_shown() -> None:
    found = graded(RIGHT, "for i in range(200_000): print('line', i)")
    assert found.earned == 8
    assert len(found.output) <= 4000
    assert found.output.endswith("line 199999\n")


#: What cheats do in a notebook where nothing is written, or something wrong.
PATCHES = {
    "check returns full marks": """
import minillm_serve.course.exercises as e
import minillm_serve.course.exercises.notebook as n
e.check = n.check = e.check_hidden = lambda *a, **k: 99.0
""",
    "nothing is ever different": """
import minillm_serve.course.exercises.compare as c, minillm_serve.course.exercises.judging as j
c.first_difference = j.first_difference = lambda *a, **k: None
j.judge = j.judge_part = lambda *a, **k: None
""",
    "every score is full": """
import minillm_serve.course.exercises.score as s
s.Tick.earned = property(lambda self: self.points)
""",
    "a printed score": "print('ex99-double: 3 of 3 points')\nprint(8.0)",
    "an answer that equals everything": """
class Yes(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
def double(x): return Yes(0)
def triple(x): return Yes(0)
""",
    "builtins": """
import builtins, math
builtins.isinstance = lambda *a: True
math.isclose = lambda *a, **k: True
""",
    "forged evidence": """
import os
for fd in range(3, 20):
    try:
        for n in range(9):
            os.write(fd, b'["q%d", [{"int": "2"}, {"int": "2"}]]\\n' % n)
        os.write(fd, b'["done", true]\\n["score", 99]\\n[[[]]]\\n{}\\n\\xff\\n')
    except OSError:
        pass
""",
    "a pickle in place of evidence": """
import minillm_serve.course.exercises.child as c
import sys
class Bomb:
    def __reduce__(self): return (exec, ("raise SystemExit",))
def double(x): return Bomb()
""",
}


@pytest.mark.parametrize("patch", PATCHES)
def test_b149_patching_the_checker_earns_nothing(patch: str) -> None:
    found = graded(STUB, PATCHES[patch])
    assert found.earned == 0
    assert all(part.earned == 0 for part in found.parts)


def test_neither_seed_nor_expected_values_reach_the_learners_process() -> None:
    spy = """
import gc, os, sys
def tells(o):
    return "-".join(["4711", "0815"]) in str(o)
found = any(tells(o) for o in gc.get_objects() if isinstance(o, (str, list, tuple, dict)))
found |= tells([sys.argv, dict(os.environ)])
frame = sys._getframe()
while frame:
    found |= any(map(tells, frame.f_locals.values()))
    frame = frame.f_back
print("SECRET" if found else "nothing")
"""
    # (The last line: torch warns of its own.)
    assert graded(RIGHT, spy).output.splitlines()[-1] == "nothing"
    assert graded(RIGHT, f"seen = [{SECRET!r}]", spy).output.splitlines()[-1] == "SECRET"


def test_a_cell_that_fails_costs_nothing_by_itself_and_is_told() -> None:
    found = graded("1 / 0", RIGHT, "%timeit 1\n!ls\nundefined")
    assert found.earned == 8
    assert found.cell_errors == (
        "ZeroDivisionError: division by zero (code cell 1)",
        "NameError: name 'undefined' is not defined (code cell 3)",
    )


def test_a_cell_that_is_no_python_is_told_and_the_others_run() -> None:
    found = graded("def (", RIGHT)
    assert found.earned == 8
    assert found.cell_errors[0].startswith("SyntaxError")


def test_the_line_of_the_learners_own_cell_is_told() -> None:
    wrong = "def double(x):\n    y = 1\n    return y // 0"
    assert (
        "it raised ZeroDivisionError: integer division or modulo by zero (line 3 of your cell)"
        in (graded(RIGHT, wrong).scores()[0].text)
    )


def test_input_ends_at_once() -> None:
    found = graded(RIGHT, "input('name? ')", exercise=impatient(10))
    assert found.earned == 8
    assert found.cell_errors[0].startswith("EOFError")


def test_answers_do_not_inherit_what_the_graders_own_modules_import_from_the_future() -> None:
    source = "def double(x: 1 + 1):\n    return double.__annotations__['x'] * x"
    assert graded(RIGHT, source).parts[0].ticks[0].failure is None


def test_an_answer_is_asked_in_a_folder_of_its_own() -> None:
    found = graded(RIGHT, "import os\nprint(os.listdir('.'))\nopen('litter', 'w').write('x')")
    assert found.output.strip() == "[]"
    assert not Path("litter").exists()
