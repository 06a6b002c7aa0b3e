"""The prefill kernel against float64: interpreted, or compiled where there is a GPU."""

import itertools

import pytest
import torch
from minillm_serve.kernels.attention_configs import PrefillConfig
from minillm_serve.kernels.attention_reference import attend_pages
from minillm_serve.kernels.paged_decode import paged_decode
from minillm_serve.kernels.paged_prefill import paged_prefill

from tests.kernels.interpret import DEVICE, assert_rounded, on_device, poisoned, reads_fenced
from tests.runtime.paged import make_problem, solve

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
#: Small tiles, so that short prompts have several of them.
SMALL = PrefillConfig(rows=32, tile=32, num_warps=4, num_stages=2)


def attend(problem, *, config=SMALL, **options):
    """Runs the kernel into poison, and returns its result and the reference's."""
    m, scale = problem.metadata, problem.q.shape[-1] ** -0.5
    out = poisoned(*problem.q.shape, dtype=problem.q.dtype)
    got = paged_prefill(
        problem.q, problem.k_cache, problem.v_cache, m.block_tables, m.seq_lens, m.query_start_loc,
        scale=scale, out=out, config=config, **options,
    )  # fmt: skip
    options.pop("min_query_len", None)
    q, k_cache, v_cache = (x.double() for x in (problem.q, problem.k_cache, problem.v_cache))
    want, _ = attend_pages(
        q, k_cache, v_cache, m.block_tables, m.seq_lens, m.query_start_loc, scale=scale, **options
    )
    assert got is out
    return got, want


@pytest.mark.parametrize("block_size", [1, 3, 4, 16, 64])
def test_whole_prompts_equal_float64_amid_nan_b137(block_size):
    lengths = sorted({1, max(block_size - 1, 1), block_size, block_size + 1, 70})
    problem = on_device(make_problem(lengths, lengths, block_size=block_size), FP32)
    got, want = attend(problem)
    assert_rounded(got, want)
    assert_rounded(got, solve(problem, scale=0.25))  # dense attention, which knows of no blocks


def test_chunks_single_rows_and_whole_prompts_share_a_step():
    lengths, queries = [20, 9, 130, 5, 17, 70], [1, 3, 40, 1, 17, 16]
    got, want = attend(on_device(make_problem(lengths, queries, block_size=16), FP32))
    assert_rounded(got, want)


@pytest.mark.parametrize("borders", [(0, 7, 14, 61), (0, 16, 32, 48, 61), (0, 1, 60, 61)])
def test_a_prompt_in_chunks_equals_the_whole(borders):
    whole = on_device(make_problem([61], [61], heads=3, kv_heads=1, block_size=16), FP32)
    _, want = attend(whole)
    m = whole.metadata
    for start, end in itertools.pairwise(borders):
        got = paged_prefill(
            whole.q[start:end], whole.k_cache, whole.v_cache, m.block_tables,
            torch.tensor([end], dtype=torch.int32, device=DEVICE),
            torch.tensor([0, end - start], dtype=torch.int32, device=DEVICE),
            scale=0.25, config=SMALL,
        )  # fmt: skip
        assert_rounded(got, want[start:end])


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [(4, 4, 16), (3, 1, 24), (9, 3, 64), (7, 1, 80), (4, 1, 96), (16, 2, 128), (32, 1, 256)],
)
def test_head_sizes_and_groups_are_padded_b139(heads, kv_heads, dim):
    problem = make_problem([17, 40], [17, 3], heads=heads, kv_heads=kv_heads, dim=dim)
    got, want = attend(on_device(problem, FP32))
    assert_rounded(got, want)


@pytest.mark.parametrize("dtype", [FP16, BF16])
@pytest.mark.parametrize("dim", [64, 80])
def test_sixteen_bits_lose_no_more_than_the_rounding_of_the_output(dtype, dim):
    problem = on_device(make_problem([40, 33], [40, 5], dim=dim, block_size=16), dtype)
    got, want = attend(problem)
    assert got.dtype == dtype
    assert_rounded(got, want)


@pytest.mark.parametrize("window", [1, 16, 17, 40, 200])
def test_a_window_hides_what_lies_before_it(window):
    problem = on_device(make_problem([16, 70, 130], [16, 70, 9], block_size=16), FP32)
    got, want = attend(problem, window=window)
    assert_rounded(got, want)


@pytest.mark.parametrize("softcap", [0.5, 30.0])
def test_a_soft_cap_bends_the_scores(softcap):
    problem = on_device(make_problem([40, 33], [40, 5], block_size=16), FP32)
    for window in (None, 20):
        got, want = attend(problem, softcap=softcap, window=window)
        assert_rounded(got, want)
    uncapped, _ = attend(problem)
    assert softcap > 1 or not torch.allclose(got, uncapped, atol=1e-3)


def test_strided_queries_and_caches_are_read_where_they_lie_b133():
    problem = on_device(make_problem([5, 40], [5, 20], block_size=16), FP32)
    want, _ = attend(problem)
    fused = poisoned(25, 12, 16)
    fused[:, 2:6] = problem.q
    problem.q = fused[:, 2:6]
    both = torch.stack([problem.k_cache, problem.v_cache], dim=1)  # keys beside values in a block
    problem.k_cache, problem.v_cache = both[:, 0], both[:, 1]
    got, _ = attend(problem)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("block_size", [3, 4, 32])
def test_nothing_outside_of_the_tensors_is_read(block_size):
    problem = on_device(make_problem([96], [70], block_size=block_size), FP32)
    m = problem.metadata
    indices = m.block_tables, m.seq_lens, m.query_start_loc
    with reads_fenced(problem.q, problem.k_cache, problem.v_cache, *indices):
        got, want = attend(problem)
    assert_rounded(got, want)


def test_with_decode_it_covers_each_row_of_a_mixed_step_once():
    problem = on_device(make_problem([40, 9, 41, 5], [1, 3, 1, 2], block_size=16), FP32)
    m = problem.metadata
    got, want = attend(problem, min_query_len=2)
    assert got[[0, 4]].isnan().all()  # left to decode
    paged_decode(
        problem.q, problem.k_cache, problem.v_cache, m.block_tables, m.seq_lens, scale=0.25,
        max_seq_len=41, query_start_loc=m.query_start_loc, out=got,
    )  # fmt: skip
    assert_rounded(got, want)


def test_many_short_sequences_each_find_their_own_rows():
    queries = [2, 1, 3, 0, 1, 1, 5, 0, 0, 17, 1]
    lengths = [length + 4 for length in queries]
    problem = on_device(make_problem(lengths, queries, block_size=4), FP32)
    got, want = attend(problem)
    assert_rounded(got, want)


def test_a_step_without_sequences_is_no_work():
    cache, empty = torch.zeros(2, 1, 4, 16, device=DEVICE), torch.zeros(0, 1, 16, device=DEVICE)
    none = torch.zeros(0, dtype=torch.int32, device=DEVICE)
    starts = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    got = paged_prefill(empty, cache, cache, none[:, None], none, starts, scale=1.0)
    assert got.shape == (0, 1, 16)


def test_offsets_beyond_two_to_the_31_elements_are_reached_b140():
    """The cache is mapped, not filled: only the blocks that are read cost memory."""
    blocks = 2**31 // (2 * 16 * 32) + 2
    cache = torch.empty(blocks, 2, 16, 32, dtype=FP16, device=DEVICE)
    table = torch.tensor([[blocks - 1, 1]], dtype=torch.int32, device=DEVICE)
    near = torch.randn(2, 2, 16, 32, device=DEVICE).half()
    cache[table[0].long()] = near
    q = torch.randn(20, 2, 32, device=DEVICE).half()
    lens = torch.tensor([20], dtype=torch.int32, device=DEVICE)
    starts = torch.tensor([0, 20], dtype=torch.int32, device=DEVICE)
    got = paged_prefill(q, cache, cache, table, lens, starts, scale=0.2)
    ids = torch.tensor([[0, 1]])
    near = near.double()
    want, _ = attend_pages(q.double(), near, near, ids, lens, starts, scale=0.2)
    assert_rounded(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [16, 40, 64, 80, 96, 112, 128, 192, 256])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 7, 8, 16, 32])
def test_a_wide_grid_of_shapes_equals_float64_b139(dim, group):
    block_size = (1, 2, 5, 8, 16, 32, 128)[(dim // 8 + group) % 7]
    for dtype in (FP32, FP16, BF16):
        problem = make_problem(
            [block_size + 1, 40],
            [block_size + 1, 9],
            heads=2 * group,
            dim=dim,
            block_size=block_size,
        )
        got, want = attend(on_device(problem, dtype))
        assert_rounded(got, want)
