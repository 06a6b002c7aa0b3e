"""`minillm-serve bench kernels`: decode attention by each backend, on one and the same pool.

With `--kv-dtypes auto int8 fp8` each backend also reads the same keys and values in 8 bits. With
`--shared 512` all sequences begin with the same 512 tokens, and each backend that can read
them once for all is timed both ways.
"""

import argparse
import dataclasses
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from benchmarks.report import Comparison, parser, positive
from minillm_serve.runtime.attention.base import AttentionMetadata
from minillm_serve.runtime.attention.cascade import SharedPrefix
from minillm_serve.runtime.attention.registry import BACKENDS
from minillm_serve.runtime.kv_cache import KVScales
from minillm_serve.runtime.kv_quantizer import KV_CACHE_DTYPES, QUANTIZERS, choose_kv_dtype

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 9, 3, 64, 16  # SmolLM2-135M


class Problem(NamedTuple):
    """A decode step over one layer's caches, and their scales where these hold codes."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    metadata: AttentionMetadata
    scales: KVScales | None = None


def main(argv: Sequence[str]) -> int:
    """Times one layer of decode attention for 64 sequences of 64..440 tokens."""
    options = parser("kernels", __doc__)
    options.add_argument("--batch", type=positive, default=64, help="sequences (%(default)s)")
    options.add_argument("--shortest", type=positive, default=64, help="tokens (%(default)s)")
    options.add_argument("--longest", type=positive, default=440, help="tokens (%(default)s)")
    options.add_argument(
        "--shared", type=blocks, default=0, help="tokens that all begin with, besides (%(default)s)"
    )
    options.add_argument("--backends", nargs="+", default=["cpu", "torch"], choices=list(BACKENDS))
    options.add_argument(
        "--kv-dtypes", nargs="+", default=["auto"], choices=list(KV_CACHE_DTYPES), help="of caches"
    )
    options.add_argument("--calls", type=positive, default=30, help="calls a run (%(default)s)")
    chosen = options.parse_args(argv)
    problem = decode_problem(chosen.batch, chosen.shortest, chosen.longest, chosen.shared)
    systems = {}
    for kind in chosen.kv_dtypes:
        kept = _systems(chosen.backends, quantized(problem, kind))
        outputs = {name: time_backend(*system, 2)[1] for name, system in kept.items()}
        for name, output in outputs.items():
            first = next(iter(outputs.values()))
            torch.testing.assert_close(output, first, rtol=1e-5, atol=1e-5, msg=name)
        also = f", KV {kind}" if kind != "auto" else ""
        systems |= {f"{name}{also}": system for name, system in kept.items()}
    times: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(chosen.repeat):
        for name, system in systems.items():
            times[name].append(time_backend(*system, chosen.calls)[0] * 1e3)
    also = f" after {chosen.shared} shared ones" if chosen.shared else ""
    result = Comparison(
        f"Decode attention, one layer, B={chosen.batch}, "
        f"{chosen.shortest}..{chosen.longest} tokens{also}, fp32",
        "ms",
        times,
        higher_is_better=False,
        context={
            "seed": 0,
            "batch": chosen.batch,
            "shared": chosen.shared,
            "kv_dtypes": chosen.kv_dtypes,
        },
    )
    print(result.table())
    if chosen.output:
        result.save(chosen.output)
    return 0


def blocks(text: str) -> int:
    """An option's value that is so many whole blocks of tokens.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    if not text.isdecimal() or int(text) % BLOCK_SIZE:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a multiple of {BLOCK_SIZE}")
    return int(text)


def _systems(backends: Sequence[str], problem: Problem) -> dict[str, tuple[str, Problem]]:
    """What is timed, by name: each backend, and with the hint first if there is one to take."""
    metadata = problem.metadata
    plain = problem._replace(metadata=dataclasses.replace(metadata, shared_prefixes=()))
    systems = {}
    for name in backends:
        if metadata.shared_prefixes and BACKENDS[name].capabilities.cascade is not None:
            systems[f"{name}, shared once"] = (name, problem)
        systems[name] = (name, plain)
    return systems


def decode_problem(batch: int, shortest: int, longest: int, shared: int = 0) -> Problem:
    """Queries, caches and metadata of a decode step over shuffled blocks.

    Each sequence has `shortest` to `longest` tokens, after `shared` ones that all have.
    """
    draw = torch.Generator().manual_seed(0)
    lengths = shared + torch.randint(shortest, longest + 1, (batch,), generator=draw).int()
    width, prefix = -(-longest // BLOCK_SIZE), shared // BLOCK_SIZE
    shape = (prefix + batch * width, KV_HEADS, BLOCK_SIZE, HEAD_DIM)
    k_cache, v_cache = (torch.randn(shape, generator=draw) for _ in range(2))
    order = torch.randperm(len(k_cache), generator=draw).int()
    tables = [order[:prefix].expand(batch, prefix), order[prefix:].view(batch, width)]
    hint = SharedPrefix(tuple(range(batch)), prefix, BLOCK_SIZE)
    metadata = AttentionMetadata(
        query_start_loc=torch.arange(batch + 1, dtype=torch.int32),
        seq_lens=lengths,
        block_tables=torch.cat(tables, dim=1),
        slot_mapping=torch.zeros(batch, dtype=torch.int64),
        max_query_len=1,
        max_seq_len=int(lengths.max()),
        shared_prefixes=(hint,) if shared else (),
    )
    q = torch.randn(batch, HEADS, HEAD_DIM, generator=draw)
    return Problem(q, k_cache, v_cache, metadata)


def quantized(problem: Problem, kind: str) -> Problem:
    """The same with keys and values as `kv_cache_dtype` names them."""
    kv_dtype = choose_kv_dtype(kind, problem.k_cache.dtype)
    if kv_dtype not in QUANTIZERS:
        return problem
    ours = QUANTIZERS[kv_dtype]
    (k, k_scale), (v, v_scale) = map(ours.quantize, (problem.k_cache, problem.v_cache))
    return problem._replace(k_cache=k, v_cache=v, scales=KVScales(k_scale, v_scale))


def time_backend(name: str, problem: Problem, calls: int) -> tuple[float, torch.Tensor]:
    """Seconds a call (the fastest of them, free of other processes' luck), and the result."""
    *given, metadata, scales = problem
    backend, scale = BACKENDS[name](), HEAD_DIM**-0.5
    plan, best = backend.plan(metadata), float("inf")
    with torch.inference_mode():
        for _ in range(calls):
            began = time.perf_counter()
            out = backend.run(*given, metadata, plan, scale=scale, window=None, scales=scales)
            best = min(best, time.perf_counter() - began)
    return best, out
