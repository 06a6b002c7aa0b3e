"""Builds what runs batches: cache, executor, and on a GPU recorded decode steps."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.request import Request, Sequence
from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.models.transformer import DecoderLayer, Transformer
from minillm_serve.runtime.attention.base import AttentionBackend
from minillm_serve.runtime.cuda_graphs import CudaCapture, GraphRunner
from minillm_serve.runtime.forward import Forward
from minillm_serve.runtime.host_blocks import HostBlocks
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.kv_quantizer import KVQuantizer
from minillm_serve.runtime.spec.drafter import Drafting
from minillm_serve.runtime.spec.verify import PAPERS_RULE, Rule
from minillm_serve.runtime.torch_executor import TorchExecutor


def build_executor(
    model: Transformer,
    backend: AttentionBackend,
    *,
    num_blocks: int,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
    kv_dtype: torch.dtype | None = None,
    kv_quantizer: KVQuantizer | None = None,
    max_num_seqs: int,
    max_model_len: int,
    async_scheduling: bool = False,
    enforce_eager: bool = False,
    num_host_blocks: int = 0,
    drafting: Drafting | None = None,
    rule: Rule = PAPERS_RULE,
) -> TorchExecutor:
    """Allocates the KV cache and builds an executor over it.

    Args:
        kv_dtype: of the cache, if it is not to be the dtype that is computed in.
        kv_quantizer: somebody's own, that makes its codes.
        num_host_blocks: as many as `swap_space` holds.
        drafting: what makes the drafter, if there is to be one.
        rule: by which drafts stay.
        others: see `LLM`.
    """
    can_be_recorded = backend.capabilities.can_be_recorded and kv_quantizer is None
    recorded = device.type == "cuda" and not enforce_eager and can_be_recorded
    kv_cache = KVCache.allocate(
        model.config,
        num_blocks=num_blocks,
        block_size=block_size,
        dtype=kv_dtype or dtype,
        device=device,
        spare=recorded,
        quantizer=kv_quantizer,
    )
    make_graphs = None
    if recorded:
        make_graphs = partial(
            GraphRunner,
            most_rows=max_num_seqs,
            table_width=-(-max_model_len // block_size),
            max_seq_len=max_model_len,
            spare_block=kv_cache.num_blocks,
            block_size=block_size,
            device=device,
            capture=CudaCapture(),
        )
    caches, drafter = [kv_cache], None
    if drafting is not None:
        own_cache = None
        if drafting.kv_config is not None:
            own_cache = KVCache.allocate(
                drafting.kv_config,
                num_blocks=num_blocks,
                block_size=block_size,
                dtype=dtype,
                device=device,
            )
            caches.append(own_cache)
        target = Forward(model, kv_cache, backend, max_model_len=max_model_len)
        drafter = drafting.make(target, own_cache)
    threaded = async_scheduling and device.type == "cpu"
    return TorchExecutor(
        model,
        kv_cache,
        backend,
        max_model_len=max_model_len,
        threaded=threaded,
        make_graphs=make_graphs,
        host_blocks=[HostBlocks(c, num_host_blocks) for c in caches] if num_host_blocks else (),
        drafter=drafter,
        rule=rule,
    )


def compile_layers(model: Transformer, backend: str | Callable[..., Any] = "inductor") -> None:
    """Lets torch compile each layer's MLP, for any number of tokens.

    Attention stays as it is: it reads the cache by kernels of its own, which `torch.compile` could
    not look into.

    Args:
        model: changed in place.
        backend: of `torch.compile`.
    """
    for layer in model.layers:
        assert isinstance(layer, DecoderLayer)
        layer.mlp.compile(dynamic=True, backend=backend)


def run_largest_step(
    model: Transformer,
    backend: AttentionBackend,
    *,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
    max_num_seqs: int,
    max_num_batched_tokens: int,
) -> None:
    """Runs a step as large as any: all tokens that one may have, and as many samples.

    All sequences share one block table. What they read is nonsense, but it takes as much memory,
    and a cache for each of them would be in the way. `dtype` is the cache's.
    """
    count = min(max_num_seqs, max_num_batched_tokens)
    longest = -(-max_num_batched_tokens // count)
    table = list(range(-(-longest // block_size)))
    cache = KVCache.allocate(
        model.config, num_blocks=len(table), block_size=block_size, dtype=dtype, device=device
    )
    scheduled, left = [], max_num_batched_tokens
    while left > 0:
        length = min(longest, left)
        params = SamplingParams(top_p=0.9, seed=0)  # the sampler's longest way
        name, prompt = str(left), (0,) * length
        sequence = Sequence(Request(request_id=name, prompt_token_ids=prompt, params=params))
        sequence.block_table = table[: -(-length // block_size)]
        scheduled.append(ScheduledSequence(sequence, 0, length, True))
        left -= length
    TorchExecutor(model, cache, backend).submit(Batch(tuple(scheduled))).wait()
