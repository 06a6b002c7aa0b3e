"""What chapter 03 says of machine code is read from a compilation on this machine."""

import io
from itertools import pairwise

import pytest

from minillm_serve.course.chapter03 import machine, pictures
from minillm_serve.course.chapter03.machine import Machine, find, instructions_per_token
from minillm_serve.course.chapter03.stages import COMPILED_TARGETS, STAGES
from minillm_serve.course.chapter03.yours import compile_yours
from minillm_serve.course.exercises.child import run_cells
from minillm_serve.course.exercises.program import program
from minillm_serve.course.exercises.registry import load
from tests.exercises.class_room import solution


@pytest.fixture(scope="module")
def machines() -> list[Machine]:
    return machine.start_compiling().result()


@pytest.mark.parametrize("target", COMPILED_TARGETS)
def test_stages_grow_into_wide_loads_and_tensor_cores_and_spill_nothing(
    machines: list[Machine], target: str
) -> None:
    found = [find(machines, stage, target) for stage in STAGES]
    assert all(one.compiled.spills == one.compiled.stack == 0 for one in found)
    assert 16 not in found[0].loads()
    # What is narrower than 16 bytes fetches block ids.
    assert all(16 in one.loads() and set(one.loads()) <= {16, 8, 4} for one in found[1:])
    assert [one.matrix() != "-" for one in found] == [False, False, False, True, True]
    counts = [instructions_per_token(one) for one in found]
    # Splitting adds the choice of a piece: a percent, which one compiler's version wins elsewhere.
    assert all(after <= 1.02 * before for before, after in pairwise(counts))
    assert counts[-1] < counts[0] / 5


def test_the_table_has_a_row_for_every_stage_and_for_the_kernel_that_ships(
    machines: list[Machine],
) -> None:
    for target in COMPILED_TARGETS:
        rows = machine.rows(machines, target)
        assert [row[0] for row in rows] == [*(s.title for s in STAGES), "*as shipped*"]
        assert all(len(row) == len(machine.HEADER) for row in rows)


def test_unknown_strides_cost_every_wide_load_and_large_tiles_spill(
    machines: list[Machine],
) -> None:
    narrow = find(machines, "stage 4, strides unknown")
    assert max(narrow.loads()) < 16
    large = find(machines, "stage 3, P = 64")
    assert large.compiled.spills > 0
    assert "spilled" in large.digest()


def test_digests_count_every_instruction_of_the_loops(machines: list[Machine]) -> None:
    for one in machines:
        counts = [int(line.split()[0]) for line in one.digest().splitlines()[1:]]
        assert sum(counts) == one.loop_instructions() > 0


def test_excerpts_are_consecutive_lines_around_what_was_asked_for(machines: list[Machine]) -> None:
    lines = find(machines, STAGES[3]).excerpt("HMMA", lines=5).splitlines()
    assert len(lines) == 5
    assert lines[2].startswith("HMMA.")


def test_a_kernel_that_was_not_compiled_is_named(machines: list[Machine]) -> None:
    with pytest.raises(KeyError, match="no 'stage 9' for sm_90"):
        find(machines, "stage 9")


def test_the_growth_picture_draws_one_bar_for_each_stage(machines: list[Machine]) -> None:
    for ax in pictures.growth(machines).axes:
        assert len(ax.patches) == len(STAGES)


def test_the_reference_of_ex03_compiles_for_real_targets() -> None:
    """The interpreter accepts code that a GPU's compiler refuses."""
    names = run_cells(program(solution(load("ex03"))), io.StringIO())
    made = compile_yours(names["load_tile"], names["fold"], names["decode_kernel"])
    assert "decode_kernel on sm_90" in made.data
    assert "HMMA" in made.data
    assert "mfma" in made.data
