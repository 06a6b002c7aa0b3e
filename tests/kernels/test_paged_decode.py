"""The decode kernel against float64: interpreted, or compiled where there is a GPU."""

import os
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl
from minillm_serve.kernels.attention_configs import DecodeConfig, choose_num_splits
from minillm_serve.kernels.attention_reference import attend_pages, merge
from minillm_serve.kernels.attention_tiles import soft_cap
from minillm_serve.kernels.combine_splits import combine_splits
from minillm_serve.kernels.paged_decode import paged_decode

from tests.kernels.interpret import DEVICE, assert_rounded, on_device, poisoned, reads_fenced
from tests.runtime.paged import make_problem, solve

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
#: Small tiles and pieces, so that short contexts have several of them.
SMALL = DecodeConfig(tile=32, num_warps=4, num_stages=2, min_split=32)


def ragged(block_size: int) -> list[int]:
    return sorted({1, max(block_size - 1, 1), block_size, block_size + 1, 130})


def attend(problem, *, config=SMALL, **options):
    """Runs the kernel into poison, and returns its result and the reference's."""
    m, scale = problem.metadata, problem.q.shape[-1] ** -0.5
    tables, lens = m.block_tables, m.seq_lens
    caches = problem.k_cache, problem.v_cache
    out = poisoned(*problem.q.shape, dtype=problem.q.dtype)
    got, lse = paged_decode(
        problem.q, *caches, tables, lens, scale=scale, max_seq_len=m.max_seq_len, out=out,
        config=config, **options,
    )  # fmt: skip
    for name in ("num_splits", "query_start_loc"):
        options.pop(name, None)
    caches = (cache.double() for cache in caches)
    want, want_lse = attend_pages(
        problem.q.double(), *caches, tables, lens, m.query_start_loc, scale=scale, **options
    )
    assert got is out
    return got, want, lse, want_lse


@pytest.mark.parametrize("block_size", [1, 3, 4, 16, 64, 256])
def test_it_equals_float64_amid_nan_for_every_block_size_b137(block_size):
    lengths = ragged(block_size)
    problem = on_device(make_problem(lengths, [1] * len(lengths), block_size=block_size), FP32)
    got, want, lse, want_lse = attend(problem)
    assert_rounded(got, want)
    assert_rounded(lse, want_lse)
    assert_rounded(got, solve(problem, scale=0.25))  # dense attention, which knows of no blocks


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [(4, 4, 16), (3, 1, 24), (9, 3, 64), (7, 1, 80), (4, 1, 96), (16, 2, 128), (32, 1, 256)],
)
def test_head_sizes_and_groups_are_padded_b139(heads, kv_heads, dim):
    problem = make_problem([1, 17, 40], [1] * 3, heads=heads, kv_heads=kv_heads, dim=dim)
    got, want, lse, want_lse = attend(on_device(problem, FP32))
    assert_rounded(got, want)
    assert_rounded(lse, want_lse)


@pytest.mark.parametrize("dtype", [FP16, BF16])
@pytest.mark.parametrize("dim", [64, 80])
def test_sixteen_bits_lose_no_more_than_the_rounding_of_the_output(dtype, dim):
    problem = on_device(make_problem([1, 40, 70], [1] * 3, dim=dim, block_size=16), dtype)
    got, want, *_ = attend(problem, num_splits=2)
    assert got.dtype == dtype
    assert_rounded(got, want)


@pytest.mark.parametrize("num_splits", [2, 3, 7])
def test_the_number_of_splits_does_not_matter_and_pieces_may_be_empty(num_splits):
    problem = on_device(make_problem([1, 33, 130], [1] * 3, block_size=16), FP32)
    got, want, lse, want_lse = attend(problem, num_splits=num_splits)
    assert_rounded(got, want)
    assert_rounded(lse, want_lse)


@pytest.mark.parametrize("window", [1, 15, 16, 17, 200])
def test_a_window_hides_what_lies_before_it(window):
    problem = on_device(make_problem([1, 16, 70], [1] * 3, block_size=16), FP32)
    for num_splits in (1, 2):
        got, want, *_ = attend(problem, window=window, num_splits=num_splits)
        assert_rounded(got, want)


@pytest.mark.parametrize("num_splits", [1, 3])
def test_what_is_skipped_and_what_is_left_are_the_whole(num_splits):
    """A beginning of each length, down to nothing and up to all there is."""
    lengths, skipped = [1, 33, 70, 40, 64], [0, 32, 3, 40, 64]
    problem = on_device(make_problem(lengths, [1] * 5, block_size=16), FP32)
    m = problem.metadata
    given = (problem.q, problem.k_cache, problem.v_cache, m.block_tables)
    skip = torch.tensor(skipped, dtype=torch.int32, device=DEVICE)
    options = {"scale": 0.25, "max_seq_len": 70, "config": SMALL, "num_splits": num_splits}
    before = paged_decode(*given, skip, **options)
    after = paged_decode(*given, m.seq_lens, skip=skip, **options)
    assert after[1][3].isneginf().all()
    assert (after[0][3:] == 0).all()
    parts = zip(before, after, strict=True)
    got, lse = merge(*(torch.stack(both).double() for both in parts))
    want, want_lse = attend_pages(
        problem.q.double(), *(x.double() for x in given[1:3]), m.block_tables, m.seq_lens,
        m.query_start_loc, scale=0.25,
    )  # fmt: skip
    assert_rounded(got.float(), want)
    assert_rounded(lse.float(), want_lse)


def test_a_window_reaches_no_further_back_than_what_is_skipped():
    problem = on_device(make_problem([40, 70], [1] * 2, block_size=16), FP32)
    m = problem.metadata
    skip = torch.tensor([30, 5], dtype=torch.int32, device=DEVICE)
    got, _ = paged_decode(
        problem.q, problem.k_cache, problem.v_cache, m.block_tables, m.seq_lens,
        scale=0.25, max_seq_len=70, skip=skip, window=20, config=SMALL,
    )  # fmt: skip
    for row, window in enumerate((10, 20)):
        assert_rounded(got[row], solve(problem, scale=0.25, window=window)[row])


@pytest.mark.parametrize("softcap", [0.5, 30.0])
def test_a_soft_cap_bends_the_scores(softcap):
    problem = on_device(make_problem([1, 40], [1] * 2, block_size=16), FP32)
    got, want, *_ = attend(problem, softcap=softcap, window=30)
    assert_rounded(got, want)
    uncapped, *_ = attend(problem, window=30)
    assert softcap > 1 or not torch.allclose(got, uncapped, atol=1e-3)


@triton.jit
def soft_cap_kernel(x_ptr, out_ptr, cap, SIZE: tl.constexpr):  # noqa: N803
    i = tl.arange(0, SIZE)
    tl.store(out_ptr + i, soft_cap(tl.load(x_ptr + i), cap))


def test_a_soft_cap_is_exact_near_zero_and_far_from_it():
    x = torch.cat([torch.linspace(-9, 9, 3000), torch.logspace(-9, 2, 1096)]).to(DEVICE)
    out = poisoned(4096)
    soft_cap_kernel[(1,)](x, out, 3.0, SIZE=4096)
    want = 3 * torch.tanh(x.double() / 3)
    torch.testing.assert_close(out.double(), want, rtol=1e-6, atol=0)


def test_strided_queries_and_caches_are_read_where_they_lie_b133():
    problem = on_device(make_problem([5, 40], [1] * 2, block_size=16), FP32)
    want, *_ = attend(problem)
    fused = poisoned(2, 12, 16)
    fused[:, 2:6] = problem.q
    problem.q = fused[:, 2:6]
    both = torch.stack([problem.k_cache, problem.v_cache], dim=1)  # keys beside values in a block
    problem.k_cache, problem.v_cache = both[:, 0], both[:, 1]
    got, *_ = attend(problem, num_splits=2)
    torch.testing.assert_close(got, want)
    slots_first = problem.k_cache.transpose(1, 2).contiguous()  # [blocks, P, H_kv, D]
    problem.k_cache = slots_first.transpose(1, 2)
    got, *_ = attend(problem)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("block_size", [3, 4, 32])
def test_nothing_outside_of_the_tensors_is_read(block_size):
    problem = on_device(make_problem([96], [1], block_size=block_size), FP32)
    m = problem.metadata
    with reads_fenced(problem.q, problem.k_cache, problem.v_cache, m.block_tables, m.seq_lens):
        got, want, *_ = attend(problem)
    assert_rounded(got, want)


def test_padding_rows_become_zero_and_read_nothing():
    problem = on_device(make_problem([40, 5], [1] * 2, block_size=16), FP32)
    problem.metadata.seq_lens[1] = 0
    problem.metadata.block_tables[1] = 2**31 - 1
    problem.q[1] = torch.nan
    for num_splits in (1, 2):
        got, want, lse, want_lse = attend(problem, num_splits=num_splits)
        assert_rounded(got, want)
        assert_rounded(lse, want_lse)
        assert lse[1].isneginf().all()


@pytest.mark.parametrize("num_splits", [1, 2])
def test_in_a_mixed_step_only_single_rows_are_attended(num_splits):
    problem = on_device(make_problem([40, 9, 41, 5], [1, 3, 1, 2], block_size=16), FP32)
    starts = problem.metadata.query_start_loc
    got, want, *_ = attend(problem, query_start_loc=starts, num_splits=num_splits)
    single = torch.tensor([0, 4])
    assert_rounded(got[single], want[single])
    others = torch.tensor([1, 2, 3, 5, 6])
    assert got[others].isnan().all()  # left as they were


def test_offsets_beyond_two_to_the_31_elements_are_reached_b140():
    """The cache is mapped, not filled: only the blocks that are read cost memory."""
    blocks = 2**31 // (2 * 16 * 32) + 2
    cache = torch.empty(blocks, 2, 16, 32, dtype=FP16, device=DEVICE)
    assert cache.stride(0) * (blocks - 1) > 2**31
    table = torch.tensor([[blocks - 1, 1]], dtype=torch.int32, device=DEVICE)
    cache[table[0].long()] = torch.randn(2, 2, 16, 32, device=DEVICE).half()
    q = torch.randn(1, 2, 32, device=DEVICE).half()
    lens = torch.tensor([20], dtype=torch.int32, device=DEVICE)
    got, _ = paged_decode(q, cache, cache, table, lens, scale=0.2, max_seq_len=20)
    starts = torch.tensor([0, 1])
    near = cache[table[0].long()].double()
    want, _ = attend_pages(q.double(), near, near, torch.tensor([[0, 1]]), lens, starts, scale=0.2)
    assert_rounded(got, want)


def test_merged_parts_are_attention_over_their_union():
    lse = torch.randn(20, 3, 2, device=DEVICE)
    lse[4:, 0], lse[:, 1] = -torch.inf, -torch.inf  # some parts are empty; of one sequence all
    parts = torch.randn(20, 3, 2, 24, device=DEVICE)
    unwritten = poisoned(20, 3, 2, 24).where(lse.isneginf()[..., None], parts)
    out, out_lse = poisoned(3, 2, 24), poisoned(3, 2)
    combine_splits(unwritten, lse, None, out, out_lse)
    want, want_lse = merge(parts.double(), lse.double())
    assert_rounded(out, want)
    assert_rounded(out_lse, want_lse)


def test_splits_fill_the_gpu_but_never_below_the_smallest_piece():
    assert choose_num_splits(8, 32768, 132, 256) == 33  # one sequence, 8 KV heads, an H200
    assert choose_num_splits(8, 1000, 132, 256) == 3
    assert choose_num_splits(512, 32768, 132, 256) == 1
    assert choose_num_splits(1, 10, 132, 256) == 1


def test_what_the_kernel_cannot_read_is_refused_by_name():
    problem = on_device(make_problem([5, 40], [1] * 2), FP32)
    m = problem.metadata
    good = {
        "q": problem.q,
        "k_cache": problem.k_cache,
        "v_cache": problem.v_cache,
        "block_tables": m.block_tables,
        "seq_lens": m.seq_lens,
    }
    transposed = problem.v_cache.mT.contiguous().mT
    for bad, message in [
        ({"v_cache": transposed}, r"v_cache has strides .*\(last stride 1\)"),
        ({"q": problem.q[:, :3]}, "3 query heads cannot share 2 KV heads"),
        ({"q": problem.q[:1]}, "1 rows for 2 sequences: pass query_start_loc"),
        ({"q": problem.q.half()}, r"k_cache is torch.float32, must be torch.float16"),
        ({"block_tables": m.block_tables.long()}, "block_tables is torch.int64"),
        ({"seq_lens": m.seq_lens[:1]}, r"block_tables has shape \[2, 10\], must have \[1, any\]"),
        ({"skip": m.seq_lens[:1]}, r"skip has shape \[1\], must have \[2\]"),
        ({"window": 0}, "window=0 must be above 0"),
        ({"softcap": -1.0}, "softcap=-1.0 must be above 0"),
        ({"v_cache": problem.v_cache.to("meta")}, "v_cache is on meta"),
    ]:
        with pytest.raises(ValueError, match=message):
            paged_decode(**{**good, **bad}, scale=1.0, max_seq_len=40)


LAUNCH = """
import torch
from minillm_serve.kernels.paged_decode import paged_decode

q, cache = torch.zeros(1, 1, 16), torch.zeros(1, 1, 16, 16)
table, lens = torch.zeros(1, 1).int(), torch.ones(1).int()
try:
    paged_decode(q, cache, cache, table, lens, scale=1.0, max_seq_len=1)
except RuntimeError as error:
    print(error)
"""


def test_on_a_cpu_without_the_interpreter_the_launcher_says_what_to_set_b134():
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", LAUNCH], env=env, capture_output=True, text=True)
    assert "set TRITON_INTERPRET=1 before the first import" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("dim", [16, 40, 64, 80, 96, 112, 128, 192, 256])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 7, 8, 16, 32])
def test_a_wide_grid_of_shapes_equals_float64_b139(dim, group):
    block_size = (1, 2, 5, 8, 16, 32, 128)[(dim // 8 + group) % 7]
    for dtype in (FP32, FP16, BF16):
        problem = make_problem(
            [1, block_size + 1, 70], [1] * 3, heads=2 * group, dim=dim, block_size=block_size
        )
        got, want, lse, want_lse = attend(on_device(problem, dtype), num_splits=2)
        assert_rounded(got, want)
        assert_rounded(lse, want_lse)
