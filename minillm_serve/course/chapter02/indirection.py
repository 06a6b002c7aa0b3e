"""What following a block table costs: attention over blocks of any size, beside contiguous memory.

Queries, keys, values and lengths are the same throughout; only where the tokens lie differs. Two
kinds of backends are measured, each beside what it would do without a block table:

- one that reads blocks where they lie (`cpu`, `triton`): the same kernel, over memory in which each
  sequence is one long block, one behind the other;
- one that first copies the blocks together (`torch`): `scaled_dot_product_attention` on the padded
  tensor [B, H_kv, L, D] that an engine without paging keeps, without any copy.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from minillm_serve.runtime.attention.base import AttentionBackend, AttentionMetadata
from minillm_serve.runtime.attention.registry import BACKENDS

HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64  # SmolLM2-135M
SCALE = HEAD_DIM**-0.5
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: The name of the measurement without a block table.
CONTIGUOUS = "contiguous"
PATH = Path("benchmarks/results/indirection_cpu.json")
REMEDY = "write it with: minillm-serve bench indirection --output"

#: backend -> memory layout (a block size as text, or `CONTIGUOUS`) -> milliseconds a call, one
#: value a round.
Times = Mapping[str, Mapping[str, list[float]]]


@dataclass(frozen=True, slots=True)
class Tokens:
    """A decode step, laid out nowhere yet.

    Attributes:
        q: [B, H, D].
        k: [B, H_kv, L, D], padded to the longest.
        v: same shape.
        lengths: [B] int32.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    lengths: Tensor

    @property
    def longest(self) -> int:
        """L."""
        return self.k.shape[2]


def make_tokens(batch: int, shortest: int, longest: int, *, device: str = "cpu") -> Tokens:
    """Random tokens of `batch` sequences of `shortest` to `longest`, from seed 0; float32."""
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(shortest, longest + 1, (batch,), generator=draw)
    lengths[0] = longest
    shape = (batch, KV_HEADS, longest, HEAD_DIM)
    q = torch.randn(batch, HEADS, HEAD_DIM, generator=draw)
    k, v = (torch.randn(shape, generator=draw) for _ in range(2))
    return Tokens(q.to(device), k.to(device), v.to(device), lengths.int().to(device))


def pages(
    tokens: Tokens, block_size: int, *, shuffled: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens in blocks that lie in any order, or one behind the other.

    Returns:
        Block tables [B, W] int32, and keys and values [B * W, H_kv, P, D].
    """
    batch, width = len(tokens.lengths), -(-tokens.longest // block_size)
    count = batch * width
    order = torch.arange(count)
    if shuffled:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    tables = order.view(batch, width).to(tokens.q.device)
    caches = []
    for dense in (tokens.k, tokens.v):
        padded = F.pad(dense, (0, 0, 0, width * block_size - tokens.longest))
        blocks = padded.view(batch, KV_HEADS, width, block_size, HEAD_DIM).transpose(1, 2)
        cache = torch.empty(count, KV_HEADS, block_size, HEAD_DIM, device=dense.device)
        cache[tables.flatten()] = blocks.reshape(count, KV_HEADS, block_size, HEAD_DIM)
        caches.append(cache)
    return tables.int(), caches[0], caches[1]


def metadata_of(tokens: Tokens, tables: Tensor) -> AttentionMetadata:
    """One new row a sequence."""
    batch, device = len(tokens.lengths), tokens.q.device
    return AttentionMetadata(
        query_start_loc=torch.arange(batch + 1, dtype=torch.int32, device=device),
        seq_lens=tokens.lengths,
        block_tables=tables,
        slot_mapping=torch.zeros(batch, dtype=torch.int64, device=device),
        max_query_len=1,
        max_seq_len=tokens.longest,
    )


def dense_attention(tokens: Tokens) -> Tensor:
    """The padded tensors as they are, [B, H, D]: what needs no block table."""
    batch = len(tokens.lengths)
    grouped = tokens.q.view(batch, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM)
    seen = torch.arange(tokens.longest, device=tokens.q.device) < tokens.lengths[:, None]
    mask = seen[:, None, None, :].expand(-1, KV_HEADS, HEADS // KV_HEADS, -1)
    out = F.scaled_dot_product_attention(grouped, tokens.k, tokens.v, attn_mask=mask, scale=SCALE)
    return out.view(batch, HEADS, HEAD_DIM)


def calls_of(name: str, tokens: Tokens, block_sizes: Iterable[int]) -> dict[str, Any]:
    """Layout -> a function that attends once, for one backend."""
    backend = BACKENDS[name]()
    calls: dict[str, Any] = {}
    if name == "torch":
        calls[CONTIGUOUS] = lambda: dense_attention(tokens)
    else:
        calls[CONTIGUOUS] = _paged_call(backend, tokens, tokens.longest, shuffled=False)
    for size in block_sizes:
        calls[str(size)] = _paged_call(backend, tokens, size, shuffled=True)
    return calls


def _paged_call(
    backend: AttentionBackend, tokens: Tokens, block_size: int, *, shuffled: bool
) -> Callable[[], Tensor]:
    tables, k_cache, v_cache = pages(tokens, block_size, shuffled=shuffled)
    metadata = metadata_of(tokens, tables)
    plan = backend.plan(metadata)

    def call() -> Tensor:
        return backend.run(tokens.q, k_cache, v_cache, metadata, plan, scale=SCALE, window=None)

    return call


def measure(
    tokens: Tokens,
    *,
    backends: Iterable[str] = ("cpu", "torch"),
    block_sizes: Iterable[int] = BLOCK_SIZES,
    rounds: int = 5,
    calls: int = 5,
) -> Times:
    """Times every layout in turn, round by round; results are compared first.

    A round keeps the fastest of its calls, which was disturbed least.

    Raises:
        AssertionError: a layout changes the result.
    """
    times: dict[str, dict[str, list[float]]] = {}
    sizes = tuple(block_sizes)
    with torch.inference_mode():
        for name in backends:
            layouts = calls_of(name, tokens, sizes)
            right = dense_attention(tokens)
            for layout, call in layouts.items():
                torch.testing.assert_close(call(), right, rtol=1e-4, atol=1e-5, msg=layout)
            times[name] = {layout: [] for layout in layouts}
            for _ in range(rounds):
                for layout, call in layouts.items():
                    times[name][layout].append(1e3 * _fastest(call, calls, tokens.q.device))
    return times


def _fastest(call: Callable[[], Tensor], calls: int, device: torch.device) -> float:
    best = float("inf")
    for _ in range(calls):
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return best


def ratios(times: Times) -> dict[str, dict[int, float]]:
    """Backend -> block size -> how many times as long as without a block table.

    The fastest rounds are compared: whatever else a machine does can only make a round slower.
    """
    found: dict[str, dict[int, float]] = {}
    for name, layouts in times.items():
        found[name] = {
            int(layout): min(values) / min(layouts[CONTIGUOUS])
            for layout, values in layouts.items()
            if layout != CONTIGUOUS
        }
    return found


def load(path: Path | None = None) -> dict[str, Any]:
    """The committed measurement: its stamp, title and times.

    Args:
        path: of the file; None looks in this folder and those above it.

    Raises:
        FileNotFoundError: it is not there; says how to write it.
    """
    places = [path] if path is not None else [p / PATH for p in (Path.cwd(), *Path.cwd().parents)]
    for place in places:
        if place.is_file():
            record: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
            return record
    raise FileNotFoundError(f"there is no {path or PATH} here or above; {REMEDY} {PATH}")
