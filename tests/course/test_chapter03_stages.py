"""Chapter 03's stages: their arithmetic, their reads, and what a compiler makes of them."""

import math

import numpy as np
import pytest
import torch
from minillm_serve.kernels.launch import is_interpreted

from minillm_serve.course.chapter03 import stages
from minillm_serve.course.chapter03.problems import DecodeProblem, decode_problem
from minillm_serve.course.chapter03.reads import Launch, passes, slots_needed, slots_read, tiles
from minillm_serve.course.chapter03.recorder import Recording, recorded
from minillm_serve.course.chapter03.stages import STAGES, Stage
from tests.course.careless_kernel import copy_without_other

DEVICE = "cpu" if is_interpreted(stages.loop_kernel) else "cuda"
interpreted = pytest.mark.skipif(DEVICE == "cuda", reason="recordings are the interpreter's")
each_stage = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)

EDGES = (1, 3, 4, 5, 13)  # for blocks of 4: one token, P - 1, P, P + 1, several


def launch_of(stage: Stage, problem: DecodeProblem, splits: int) -> Launch:
    heads, kv_heads = problem.q.shape[1], problem.k_cache.shape[1]
    lengths = tuple(problem.seq_lens.tolist())
    size = problem.k_cache.shape[2]
    return Launch(stage, lengths, problem.tables(), size, heads, kv_heads, splits)


def record(stage: Stage, problem: DecodeProblem, splits: int) -> Recording:
    with recorded(k=problem.k_cache, v=problem.v_cache) as recording:
        stage.attend(*problem.arguments, scale=problem.scale, num_splits=splits)
    return recording


@each_stage
@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 1), (4, 4)])
def test_every_stage_attends_as_float64_does_beside_slots_full_of_nan(
    stage: Stage, heads: int, kv_heads: int
) -> None:
    """B137: a weight of 0 does not make NaN vanish, so what is not read must not be loaded."""
    problem = decode_problem(
        EDGES,
        heads=heads,
        kv_heads=kv_heads,
        block_size=16 if DEVICE == "cuda" else 4,
        device=DEVICE,
    )
    out = stage.attend(*problem.arguments, scale=problem.scale)
    assert problem.error(out) < 2e-6


@each_stage
def test_every_stage_takes_strided_queries_and_caches(stage: Stage) -> None:
    """B133: q as a slice of a fused tensor, KV heads that are a slice of more."""
    problem = decode_problem((5, 2), heads=4, kv_heads=2, device=DEVICE, block_size=16)
    fused = torch.full((2, 8, 16), math.nan, device=DEVICE)
    fused[:, :4] = problem.q
    wide = torch.full((2, len(problem.k_cache), 5, 16, 16), math.nan, device=DEVICE)
    k_cache, v_cache = wide[0, :, 1:3], wide[1, :, 1:3]
    k_cache.copy_(problem.k_cache)
    v_cache.copy_(problem.v_cache)
    tables, lens = problem.arguments[3:]
    out = stage.attend(fused[:, :4], k_cache, v_cache, tables, lens, scale=problem.scale)
    assert problem.error(out) < 2e-6


def test_the_split_stage_does_not_depend_on_how_many_pieces_there_are() -> None:
    problem = decode_problem((1, 9), heads=2, kv_heads=1, block_size=16, device=DEVICE)
    for splits in (1, 2, 7):
        out = STAGES[4].attend(*problem.arguments, scale=problem.scale, num_splits=splits)
        assert problem.error(out) < 2e-6, splits


@interpreted
@each_stage
def test_the_index_arithmetic_of_the_widget_is_that_of_the_kernel(stage: Stage) -> None:
    problem, splits = decode_problem((1, 4, 5, 11)), 2
    launch, recording = launch_of(stage, problem, splits), record(stage, problem, splits)
    for program in launch.programs():
        found = tiles(launch, program)
        rows = [row for tile in found for row in tile.read()]
        for name, times in zip("kv", passes(stage), strict=True):
            index = recording.touched(name, program)
            read = (
                [tuple(row) for row in index[index[:, 3] == 0, :3].tolist()] if len(index) else []
            )
            assert read == rows * times, (name, program)
        lanes = [
            access.mask.reshape(-1, problem.q.shape[2])[:, 0]
            for access in recording.accesses
            if access.program == program and access.tensor == "v"
        ]
        masks = [on for tile in found for on in tile.mask]
        assert np.concatenate(lanes).tolist() == masks if lanes else not masks
    rows_read = sum(len(recording.touched(name)) for name in "kv") // problem.q.shape[2]
    assert rows_read == slots_read(launch)


def test_reads_fall_from_stage_to_stage_down_to_the_floor() -> None:
    problem = decode_problem((16, 7), heads=6, kv_heads=2)
    launches = [launch_of(stage, problem, 2) for stage in STAGES]
    floor = slots_needed(launches[0])
    group = launches[0].group
    times = [slots_read(launch) / floor for launch in launches]
    assert times == [1.5 * group, 1.5 * group, group, 1, 1]


@interpreted
def test_a_read_outside_all_tensors_is_stopped_and_placed() -> None:
    problem = decode_problem((5,))
    problem.block_tables[0, 1] = 10**6
    with recorded(k_cache=problem.k_cache) as recording, pytest.raises(Exception, match="past the"):
        STAGES[2].attend(*problem.arguments, scale=1.0)
    assert recording.wild.startswith("program (0, 0, 0) reads")
    assert "bytes past the end of k_cache" in recording.wild
    with recorded() as after:  # the interpreter is as it was
        STAGES[2].attend(*decode_problem((5,)).arguments, scale=1.0)
    assert not after.wild


@interpreted
def test_lanes_that_are_masked_off_without_other_show_as_nan() -> None:
    """A GPU leaves them undefined; the interpreter by itself hides that behind zeros."""
    x, out = torch.ones(4), torch.zeros(4)
    copy_without_other[(1,)](x, out, 2, n_padded=4)
    assert out.tolist() == [1, 1, 0, 0]
    with recorded(x=x):
        copy_without_other[(1,)](x, out, 2, n_padded=4)
    assert out[:2].tolist() == [1, 1]
    assert out[2:].isnan().all()


def test_stages_refuse_what_they_cannot_compute() -> None:
    problem = decode_problem((5,), dim=24, device=DEVICE)
    with pytest.raises(ValueError, match="D=24: these stages take powers of two"):
        STAGES[0].attend(*problem.arguments, scale=1.0)
    if DEVICE == "cpu":
        narrow = [x.bfloat16() for x in decode_problem((5,)).arguments[:3]]
        with pytest.raises(ValueError, match="bfloat16"):
            STAGES[0].attend(*narrow, *decode_problem((5,)).arguments[3:], scale=1.0)


@interpreted
def test_masked_lanes_that_happen_to_point_into_a_tensor_do_not_read_it() -> None:
    """Rows that pad a group point behind q, where the keys may lie."""
    problem = decode_problem((5,), heads=2, kv_heads=1)
    memory = torch.empty(problem.q.numel() + problem.k_cache.numel())
    q = memory[: problem.q.numel()].view(problem.q.shape)
    k_cache = memory[problem.q.numel() :].view(problem.k_cache.shape)
    q.copy_(problem.q)
    k_cache.copy_(problem.k_cache)
    with recorded(q=q, k_cache=k_cache) as recording:
        STAGES[3].attend(q, k_cache, *problem.arguments[2:], scale=1.0)
    assert len(recording.touched("q")) == q.numel()
    assert len(recording.touched("k_cache")) == 5 * 16
    assert recording.touched("k_cache").min() == 0
