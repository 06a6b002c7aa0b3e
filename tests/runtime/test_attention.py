"""The conformance suite: what every attention backend must do."""

import dataclasses
import math
import os
import subprocess
import sys

import pytest
import torch

from minillm_serve.runtime.attention.cascade import SharedPrefix
from minillm_serve.runtime.attention.naive import NaiveAttention
from minillm_serve.runtime.attention.registry import BACKENDS, select_backend
from minillm_serve.runtime.kv_cache import KVScales
from minillm_serve.runtime.kv_quantizer import QUANTIZERS, dequantize
from tests.runtime.paged import make_problem, solve

P = 4
DECODE = ([1, P - 1, P, P + 1, 130], [1] * 5)
PREFILL = ([1, P - 1, P, P + 1, 33], [1, P - 1, P, P + 1, 33])
MIXED = ([20, 9, 41, 5, 17], [1, 3, 40, 1, 17])

backends = pytest.mark.parametrize("name", sorted(BACKENDS))


def run(name, problem, *, scale, window=None, dtype=torch.float32):
    backend = BACKENDS[name]()
    problem = problem.to(dtype)
    plan = backend.plan(problem.metadata)
    return backend.run(
        problem.q,
        problem.k_cache,
        problem.v_cache,
        problem.metadata,
        plan,
        scale=scale,
        window=window,
    )


@backends
@pytest.mark.parametrize("step", [DECODE, PREFILL, MIXED], ids=["decode", "prefill", "mixed"])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_it_equals_dense_attention_amid_nan_b137(name, step, block_size):
    problem = make_problem(*step, block_size=block_size)
    got = run(name, problem, scale=0.25)
    torch.testing.assert_close(got.double(), solve(problem, scale=0.25), rtol=2e-6, atol=2e-6)


SHAPES = [(1, 1, 16), (8, 1, 24), (9, 3, 64), (14, 2, 64), (4, 4, 80), (6, 3, 128), (80, 2, 20)]
#: Numba takes many seconds to compile each shape; those that add least wait for `make test-full`.
RARE = {("cpu", 14, 2, 64), ("cpu", 4, 4, 80)}


@pytest.mark.parametrize(
    ("name", "heads", "kv_heads", "dim"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] if case in RARE else [])
        for case in ((name, *shape) for name in sorted(BACKENDS) for shape in SHAPES)
    ],
)
def test_query_heads_share_kv_heads_b139(name, heads, kv_heads, dim):
    problem = make_problem([7, 75], [1, 68], heads=heads, kv_heads=kv_heads, dim=dim)
    got = run(name, problem, scale=dim**-0.5)
    torch.testing.assert_close(got.double(), solve(problem, scale=dim**-0.5), rtol=2e-6, atol=2e-6)


@backends
@pytest.mark.parametrize("window", [1, 3, 4, 5, 100])
@pytest.mark.parametrize("step", [DECODE, MIXED], ids=["decode", "mixed"])
def test_a_window_hides_what_lies_before_it(name, window, step):
    problem = make_problem(*step)
    got = run(name, problem, scale=0.25, window=window)
    want = solve(problem, scale=0.25, window=window)
    torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=2e-6)


def shared_step(block_size, rows=(1,) * 7):
    """Two groups and two sequences by themselves; the first has one token after its prefix."""
    prefixes = (SharedPrefix((0, 2, 5), 3, block_size), SharedPrefix((1, 4), 2, block_size))
    first, second = 3 * block_size, 2 * block_size
    lengths = [first + 1, second + 3, first + block_size, 40, second + 1, first + 70, 6]
    return lengths, list(rows), prefixes


@backends
@pytest.mark.parametrize("rows", [(1,) * 7, (1, 1, 1, 25, 1, 1, 2)], ids=["decode", "mixed"])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_shared_prefixes_change_nothing_amid_nan_b137(name, rows, block_size):
    problem = make_problem(*shared_step(block_size, rows), block_size=block_size)
    got = run(name, problem, scale=0.25)
    torch.testing.assert_close(got.double(), solve(problem, scale=0.25), rtol=2e-6, atol=2e-6)


@backends
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(1, 1, 16), (9, 3, 64), (80, 2, 20)])
@pytest.mark.parametrize("members", [2, 12], ids=["two", "all of 12"])
def test_heads_of_a_group_of_two_and_of_all_read_a_prefix_together_b139(
    name, members, heads, kv_heads, dim
):
    prefix = (SharedPrefix(tuple(range(members)), 5, P),)
    lengths = [21 + s % 7 for s in range(members)]
    shape = {"heads": heads, "kv_heads": kv_heads, "dim": dim}
    problem = make_problem(lengths, [1] * members, prefix, **shape)
    got = run(name, problem, scale=dim**-0.5)
    torch.testing.assert_close(got.double(), solve(problem, scale=dim**-0.5), rtol=2e-6, atol=2e-6)


@backends
@pytest.mark.parametrize("window", [1, 5, 13, 81, 82, 83])
def test_shared_prefixes_lie_behind_a_window_like_all_else(name, window):
    """The longest of the contexts has 82 tokens."""
    problem = make_problem(*shared_step(P))
    got = run(name, problem, scale=0.25, window=window)
    want = solve(problem, scale=0.25, window=window)
    torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=2e-6)


@backends
def test_large_scores_over_a_shared_prefix_do_not_overflow(name):
    problem = make_problem(*shared_step(P))
    got = run(name, problem, scale=100.0)
    torch.testing.assert_close(got.double(), solve(problem, scale=100.0), rtol=1e-3, atol=1e-3)


@backends
def test_a_prefix_is_read_from_one_table_for_all_by_those_who_can(name):
    """So a hint that is wrong gives the first member's context to the second; others ignore it."""
    lengths, prefix = [13, 13], SharedPrefix((0, 1), 3, P)
    problem = make_problem(lengths, [1, 1])
    problem.metadata = dataclasses.replace(problem.metadata, shared_prefixes=(prefix,))
    got = run(name, problem, scale=0.25).double()
    want = solve(problem, scale=0.25)
    torch.testing.assert_close(got[0], want[0], rtol=2e-6, atol=2e-6)
    for own in (problem.keys, problem.values):
        own[1] = torch.cat([own[0][:12], own[1][12:]])
    if BACKENDS[name].capabilities.cascade is not None:
        want = solve(problem, scale=0.25)
    torch.testing.assert_close(got[1], want[1], rtol=2e-6, atol=2e-6)


def coded(problem, kv_dtype):
    """The same problem over codes; unused slots get scales of NaN. And with what codes mean."""
    unused = problem.k_cache.isnan().all(-1)
    caches, scales = [], []
    for cache in (problem.k_cache, problem.v_cache):
        codes, steps = QUANTIZERS[kv_dtype].quantize(cache.nan_to_num(0.0))
        caches.append(codes)
        scales.append(steps.masked_fill(unused, math.nan))
    problem = dataclasses.replace(problem, k_cache=caches[0], v_cache=caches[1])
    for own, ours in ((problem.keys, QUANTIZERS[kv_dtype]), (problem.values, QUANTIZERS[kv_dtype])):
        own[:] = [dequantize(*ours.quantize(x), torch.float64) for x in own]
    return problem, KVScales(*scales)


def run_coded(name, problem, scales, dtype, **options):
    backend = BACKENDS[name]()
    caches = problem.k_cache, problem.v_cache
    plan = backend.plan(problem.metadata)
    q = problem.q.to(dtype)
    return backend.run(q, *caches, problem.metadata, plan, scales=scales, **options)


@backends
@pytest.mark.parametrize("kv_dtype", list(QUANTIZERS), ids=["int8", "fp8"])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("block_size", [4, 16])
def test_codes_count_as_code_times_scale_amid_nan_b137(name, kv_dtype, window, block_size):
    """Exact against the dequantized reference: decodes, slices, and shared prefixes."""
    steps = [MIXED, shared_step(block_size, (1, 1, 1, 25, 1, 1, 2))]
    for step in steps:
        problem, scales = coded(make_problem(*step, block_size=block_size), kv_dtype)
        got = run_coded(name, problem, scales, torch.float32, scale=0.25, window=window)
        want = solve(problem, scale=0.25, window=window)
        torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=2e-6)


@backends
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kv_dtype", list(QUANTIZERS), ids=["int8", "fp8"])
def test_codes_are_read_in_every_dtype_that_a_backend_computes_in(name, dtype, kv_dtype):
    if dtype not in BACKENDS[name].capabilities.dtypes:
        pytest.skip("another test sees that it is refused")
    problem, scales = coded(make_problem(*shared_step(P)), kv_dtype)
    problem = dataclasses.replace(problem, q=problem.q.to(dtype))
    got = run_coded(name, problem, scales, dtype, scale=0.25, window=None)
    assert got.dtype is dtype
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 1e-12}[dtype]
    want = solve(problem, scale=0.25)
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


def test_a_backend_that_reads_no_codes_is_refused_by_name(monkeypatch):
    cpu, can = torch.device("cpu"), NaiveAttention.capabilities
    plain = dataclasses.replace(can, kv_dtypes=frozenset())
    monkeypatch.setattr(NaiveAttention, "capabilities", plain)
    with pytest.raises(ValueError, match=r"'naive' reads no KV cache of torch.int8 .* none\)"):
        select_backend(
            "naive", device=cpu, dtype=torch.float32, needs_window=False, kv_dtype=torch.int8
        )


@backends
def test_strided_queries_are_read_right_b133(name):
    problem = make_problem(*MIXED)
    fused = torch.randn(len(problem.q), 12, 16)
    fused[:, 2:6] = problem.q
    problem.q = fused[:, 2:6]
    got = run(name, problem, scale=0.25)
    torch.testing.assert_close(got.double(), solve(problem, scale=0.25), rtol=2e-6, atol=2e-6)


@backends
def test_large_scores_do_not_overflow(name):
    problem = make_problem(*MIXED)
    got = run(name, problem, scale=100.0)
    assert got.isfinite().all()


@backends
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("step", [MIXED, shared_step(P)], ids=["mixed", "shared"])
def test_other_dtypes_are_computed_or_refused_by_name(name, step, dtype):
    problem = make_problem(*step)
    if dtype not in BACKENDS[name].capabilities.dtypes:
        with pytest.raises(ValueError, match=f"'{name}' does not take {dtype}"):
            select_backend(name, device=torch.device("cpu"), dtype=dtype, needs_window=False)
        return
    got = run(name, problem, scale=0.25, dtype=dtype)
    assert got.dtype is dtype
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 1e-12}[dtype]
    want = solve(problem.to(dtype).to(torch.float64), scale=0.25)
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


@backends
def test_new_keys_and_values_go_to_their_slots_and_nowhere_else(name):
    problem = make_problem(*MIXED).to(torch.float32)
    k_cache, v_cache = torch.zeros_like(problem.k_cache), torch.zeros_like(problem.v_cache)
    rows = len(problem.q)
    fused = torch.randn(rows, 4, 16)
    k, v = fused[:, :2], fused[:, 2:]  # strided, as they come out of a fused projection
    slots = problem.metadata.slot_mapping
    BACKENDS[name]().write(k, v, k_cache, v_cache, slots)
    for row, slot in enumerate(slots.tolist()):
        assert torch.equal(k_cache[slot // P, :, slot % P], k[row])
        assert torch.equal(v_cache[slot // P, :, slot % P], v[row])
    assert (k_cache != 0).any(dim=(1, 3)).sum() == rows


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match=r"'flash' is unknown: choose from auto, "):
        select_backend("flash", device=torch.device("cpu"), dtype=torch.float32, needs_window=False)


def test_a_backend_is_refused_on_a_device_that_it_lacks():
    with pytest.raises(ValueError, match="'cpu' does not run on device 'cuda'"):
        select_backend("cpu", device=torch.device("cuda"), dtype=torch.float32, needs_window=False)


@pytest.mark.parametrize(("dtype", "name"), [(torch.float32, "cpu"), (torch.bfloat16, "torch")])
def test_auto_takes_the_fastest_that_can(dtype, name):
    backend = select_backend("auto", device=torch.device("cpu"), dtype=dtype, needs_window=True)
    assert backend.name == name


@pytest.mark.parametrize(("torch_threads", "numba_threads"), [("1", "2"), ("2", "1"), ("2", "2")])
def test_numba_leaves_torch_the_threads_it_was_given(torch_threads, numba_threads):
    code = (
        "import torch; before = torch.get_num_threads()\n"
        "from minillm_serve.runtime.attention.cpu import CpuAttention\n"
        "from tests.runtime.paged import make_problem\n"
        "problem = make_problem([5, 9], [1, 1]).to(torch.float32)\n"
        "backend = CpuAttention()\n"
        "backend.run(problem.q, problem.k_cache, problem.v_cache, problem.metadata,\n"
        "            backend.plan(problem.metadata), scale=1.0, window=None)\n"
        f"assert torch.get_num_threads() == before == int({torch_threads!r})\n"
    )
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": torch_threads,
        "NUMBA_NUM_THREADS": numba_threads,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
