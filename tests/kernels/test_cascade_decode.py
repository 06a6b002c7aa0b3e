"""The kernel for shared prefixes against float64 and against plain paged decode."""

import pytest
import torch
from minillm_serve.kernels.attention_configs import CascadeConfig, DecodeConfig
from minillm_serve.kernels.attention_reference import attend_pages
from minillm_serve.kernels.cascade_decode import cascade_decode
from minillm_serve.kernels.paged_decode import paged_decode

from minillm_serve.runtime.attention.cascade import SharedPrefix, member_tiles, shared_tokens
from tests.kernels.interpret import (
    DEVICE,
    NO_BLOCK,
    assert_rounded,
    on_device,
    poisoned,
    reads_fenced,
)
from tests.runtime.paged import make_problem, solve

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
#: Small tiles and pieces, so that short prefixes have several of them.
SMALL = CascadeConfig(tile=16, num_warps=4, num_stages=2, min_split=16, rows=16)
SMALL_DECODE = DecodeConfig(tile=16, num_warps=4, num_stages=2, min_split=16)


def groups(block_size, *blocks):
    """Of six sequences two groups: three of the first, two of the second; one is alone."""
    members = ((0, 2, 5), (1, 4))
    return tuple(
        SharedPrefix(one, count, block_size) for one, count in zip(members, blocks, strict=True)
    )


def lengths(block_size, *blocks):
    """All prefixes whole; one token more, or more by odd numbers. Sequence 3 shares nothing."""
    first, second = (count * block_size for count in blocks)
    return [first + 1, second + 1, first + block_size, 37, second + 5, first + 33]


def shared_problem(block_size=4, blocks=(9, 3), queries=(1,) * 6, dtype=FP32, **shape):
    problem = make_problem(
        lengths(block_size, *blocks),
        list(queries),
        groups(block_size, *blocks),
        block_size=block_size,
        **shape,
    )
    return on_device(problem, dtype)


def attend(problem, *, config=SMALL, spare_tiles=0, **options):
    """Runs the kernels into poison, and returns their result and the reference's."""
    m, scale = problem.metadata, problem.q.shape[-1] ** -0.5
    given = (problem.q, problem.k_cache, problem.v_cache, m.block_tables, m.seq_lens)
    group = problem.q.shape[1] // problem.k_cache.shape[1]
    tiles = torch.from_numpy(member_tiles(m.shared_prefixes, config.sequences(group)))
    tiles = torch.cat([tiles, tiles.new_full((spare_tiles, tiles.shape[1]), -1)])
    shared = torch.from_numpy(shared_tokens(m.shared_prefixes, m.num_sequences))
    out = poisoned(*problem.q.shape, dtype=problem.q.dtype)
    got, lse = cascade_decode(
        *given, tiles.to(DEVICE), shared.to(DEVICE), scale=scale, out=out,
        max_seq_len=m.max_seq_len, max_shared_len=int(shared.max()),
        config=config, decode_config=SMALL_DECODE, **options,
    )  # fmt: skip
    options = {key: options[key] for key in ("softcap",) if key in options}
    wide = (x.double() for x in given[:3])
    want, want_lse = attend_pages(*wide, *given[3:], m.query_start_loc, scale=scale, **options)
    assert got is out
    return got, want, lse, want_lse


@pytest.mark.parametrize("block_size", [1, 3, 4, 16, 64])
def test_it_equals_float64_amid_nan_for_every_block_size_b137(block_size):
    blocks = (max(40 // block_size, 1), max(18 // block_size, 1))
    problem = shared_problem(block_size, blocks)
    got, want, lse, want_lse = attend(problem)
    assert_rounded(got, want)
    assert_rounded(lse, want_lse)
    assert_rounded(got, solve(problem, scale=0.25))  # dense attention, which knows of no blocks


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [(4, 4, 16), (3, 1, 24), (9, 3, 64), (7, 1, 80), (4, 1, 96), (16, 2, 128), (32, 1, 256)],
)
def test_head_sizes_and_groups_are_padded_b139(heads, kv_heads, dim):
    problem = shared_problem(heads=heads, kv_heads=kv_heads, dim=dim)
    got, want, lse, want_lse = attend(problem)
    assert_rounded(got, want)
    assert_rounded(lse, want_lse)


@pytest.mark.parametrize("dtype", [FP16, BF16])
@pytest.mark.parametrize("dim", [64, 80])
def test_sixteen_bits_lose_no_more_than_the_rounding_of_the_output(dtype, dim):
    """Parts are kept in float32: a result is rounded once, when all of it is merged."""
    problem = shared_problem(16, (3, 1), dtype=dtype, dim=dim)
    got, want, *_ = attend(problem)
    assert got.dtype == dtype
    assert_rounded(got, want)


@pytest.mark.parametrize("num_splits", [(1, 1), (1, 3), (2, 1), (7, 2)])
def test_the_number_of_splits_does_not_matter_and_pieces_may_be_empty(num_splits):
    problem = shared_problem()
    got, want, lse, want_lse = attend(problem, num_splits=num_splits)
    assert_rounded(got, want)
    assert_rounded(lse, want_lse)


def test_it_gives_what_plain_paged_decode_gives():
    problem = shared_problem(16, (3, 2))
    m = problem.metadata
    got, _, lse, _ = attend(problem)
    given = (problem.q, problem.k_cache, problem.v_cache, m.block_tables, m.seq_lens)
    want, want_lse = paged_decode(*given, scale=0.25, max_seq_len=m.max_seq_len)
    torch.testing.assert_close(got, want, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(lse, want_lse, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("rows", [16, 64])
def test_a_group_may_fill_many_tiles_or_a_corner_of_one(rows):
    prefix = (SharedPrefix(tuple(range(11)), 3, 4),)
    problem = on_device(make_problem([13 + s for s in range(11)], [1] * 11, prefix), FP32)
    config = CascadeConfig(tile=16, num_warps=4, num_stages=2, min_split=16, rows=rows)
    got, want, *_ = attend(problem, config=config)
    assert_rounded(got, want)


def test_room_left_in_the_list_of_tiles_costs_nothing_and_reads_nothing():
    got, want, *_ = attend(shared_problem(), spare_tiles=3)
    assert_rounded(got, want)


def test_a_soft_cap_bends_both_parts():
    problem = shared_problem()
    got, want, *_ = attend(problem, softcap=0.5)
    assert_rounded(got, want)
    uncapped, *_ = attend(problem)
    assert not torch.allclose(got, uncapped, atol=1e-3)


def test_in_a_mixed_step_only_single_rows_are_attended():
    """Sequence 3, which is in no group, has four rows between those of the others."""
    problem = shared_problem(queries=(1, 1, 1, 4, 1, 1))
    got, want, *_ = attend(problem, query_start_loc=problem.metadata.query_start_loc)
    single, others = torch.tensor([0, 1, 2, 7, 8]), torch.tensor([3, 4, 5, 6])
    assert_rounded(got[single], want[single])
    assert got[others].isnan().all()  # left as they were


def test_strided_queries_and_caches_are_read_where_they_lie_b133():
    problem = shared_problem(16, (3, 2))
    want, *_ = attend(problem)
    fused = poisoned(6, 12, 16)
    fused[:, 2:6] = problem.q
    problem.q = fused[:, 2:6]
    both = torch.stack([problem.k_cache, problem.v_cache], dim=1)  # keys beside values in a block
    problem.k_cache, problem.v_cache = both[:, 0], both[:, 1]
    got, *_ = attend(problem)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("block_size", [3, 4, 32])
def test_nothing_outside_of_the_tensors_is_read(block_size, monkeypatch):
    problem = shared_problem(block_size, (2, 1))
    m = problem.metadata
    shared = torch.from_numpy(shared_tokens(m.shared_prefixes, 6)).to(DEVICE)
    tiles = torch.from_numpy(member_tiles(m.shared_prefixes, SMALL.sequences(2))).to(DEVICE)
    given = (problem.q, problem.k_cache, problem.v_cache, m.block_tables, m.seq_lens, tiles, shared)
    # What it merges lies in tensors of its own, which cannot be fenced from here.
    monkeypatch.setattr("minillm_serve.kernels.cascade_decode.combine_splits", lambda *pieces: None)
    with reads_fenced(*given):
        cascade_decode(
            *given, scale=0.25, max_seq_len=m.max_seq_len, max_shared_len=2 * block_size,
            config=SMALL, decode_config=SMALL_DECODE,
        )  # fmt: skip


def test_padding_rows_become_zero_and_read_nothing():
    problem = shared_problem()
    problem.metadata.seq_lens[3] = 0
    problem.metadata.block_tables[3] = NO_BLOCK
    problem.q[3] = torch.nan
    got, want, lse, want_lse = attend(problem)
    assert_rounded(got, want)
    assert_rounded(lse, want_lse)
    assert lse[3].isneginf().all()


def test_what_the_kernel_cannot_read_is_refused_by_name():
    problem = shared_problem()
    m = problem.metadata
    good = {
        "q": problem.q,
        "k_cache": problem.k_cache,
        "v_cache": problem.v_cache,
        "block_tables": m.block_tables,
        "seq_lens": m.seq_lens,
        "members": torch.full((2, 8), -1, dtype=torch.int32, device=DEVICE),
        "shared_lens": torch.zeros_like(m.seq_lens),
    }
    for bad, message in [
        ({"members": good["members"][:, :7]}, r"members has shape \[2, 7\], must have \[any, 8\]"),
        ({"members": good["members"].long()}, "members is torch.int64, must be torch.int32"),
        ({"members": good["members"].to("meta")}, "members is on meta"),
        ({"shared_lens": m.seq_lens[:5]}, r"shared_lens has shape \[5\], must have \[6\]"),
        ({"q": problem.q[:2]}, "2 rows for 6 sequences: pass query_start_loc"),
        ({"softcap": 0.0}, "softcap=0.0 must be above 0"),
        ({"v_cache": problem.v_cache.half()}, "v_cache is torch.float16, must be torch.float32"),
    ]:
        with pytest.raises(ValueError, match=message):
            cascade_decode(
                **{**good, **bad}, scale=1.0, max_seq_len=99, max_shared_len=36, config=SMALL
            )


@pytest.mark.slow
@pytest.mark.parametrize("dim", [16, 64, 80, 128, 256])
@pytest.mark.parametrize("group", [1, 3, 4, 8, 32])
def test_a_wide_grid_of_shapes_equals_float64_b139(dim, group):
    block_size = (1, 5, 8, 16, 32)[(dim // 8 + group) % 5]
    for dtype in (FP32, FP16, BF16):
        problem = shared_problem(block_size, (3, 2), dtype=dtype, heads=2 * group, dim=dim)
        got, want, lse, want_lse = attend(problem, num_splits=(2, 2))
        assert_rounded(got, want)
        assert_rounded(lse, want_lse)
