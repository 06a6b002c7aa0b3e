"""`minillm-serve bench kernels`: decode attention by each backend, on one and the same pool."""

import time
from collections.abc import Sequence

import torch

from benchmarks.report import Comparison, parser, positive
from minillm_serve.runtime.attention.base import AttentionMetadata
from minillm_serve.runtime.attention.registry import BACKENDS

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 9, 3, 64, 16  # SmolLM2-135M


def main(argv: Sequence[str]) -> int:
    """Times one layer of decode attention for 64 sequences of 64..440 tokens."""
    options = parser("kernels", __doc__)
    options.add_argument("--batch", type=positive, default=64, help="sequences (%(default)s)")
    options.add_argument("--shortest", type=positive, default=64, help="tokens (%(default)s)")
    options.add_argument("--longest", type=positive, default=440, help="tokens (%(default)s)")
    options.add_argument("--backends", nargs="+", default=["cpu", "torch"], choices=list(BACKENDS))
    options.add_argument("--calls", type=positive, default=30, help="calls a run (%(default)s)")
    chosen = options.parse_args(argv)
    problem = decode_problem(chosen.batch, chosen.shortest, chosen.longest)
    times: dict[str, list[float]] = {name: [] for name in chosen.backends}
    outputs = {name: time_backend(name, problem, 2)[1] for name in chosen.backends}
    first = outputs[chosen.backends[0]]
    for name, output in outputs.items():
        torch.testing.assert_close(output, first, rtol=1e-5, atol=1e-5, msg=name)
    for _ in range(chosen.repeat):
        for name in chosen.backends:
            times[name].append(time_backend(name, problem, chosen.calls)[0] * 1e3)
    result = Comparison(
        f"Decode attention, one layer, B={chosen.batch}, "
        f"{chosen.shortest}..{chosen.longest} tokens, fp32",
        "ms",
        times,
        higher_is_better=False,
        context={"seed": 0, "batch": chosen.batch},
    )
    print(result.table())
    if chosen.output:
        result.save(chosen.output)
    return 0


Problem = tuple[torch.Tensor, torch.Tensor, torch.Tensor, AttentionMetadata]


def decode_problem(batch: int, shortest: int, longest: int) -> Problem:
    """Queries, caches and metadata of a decode step over shuffled blocks."""
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(shortest, longest + 1, (batch,), generator=draw).int()
    width = -(-longest // BLOCK_SIZE)
    shape = (batch * width, KV_HEADS, BLOCK_SIZE, HEAD_DIM)
    k_cache, v_cache = (torch.randn(shape, generator=draw) for _ in range(2))
    metadata = AttentionMetadata(
        query_start_loc=torch.arange(batch + 1, dtype=torch.int32),
        seq_lens=lengths,
        block_tables=torch.randperm(batch * width, generator=draw).view(batch, width).int(),
        slot_mapping=torch.zeros(batch, dtype=torch.int64),
        max_query_len=1,
        max_seq_len=int(lengths.max()),
    )
    return torch.randn(batch, HEADS, HEAD_DIM, generator=draw), k_cache, v_cache, metadata


def time_backend(name: str, problem: Problem, calls: int) -> tuple[float, torch.Tensor]:
    """Seconds a call (the fastest of them, free of other processes' luck), and the result."""
    q, k_cache, v_cache, metadata = problem
    backend, scale = BACKENDS[name](), HEAD_DIM**-0.5
    plan, best = backend.plan(metadata), float("inf")
    with torch.inference_mode():
        for _ in range(calls):
            began = time.perf_counter()
            out = backend.run(q, k_cache, v_cache, metadata, plan, scale=scale, window=None)
            best = min(best, time.perf_counter() - began)
    return best, out
