"""KV caches that several files copy blocks of."""

import pytest
import torch

from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.kv_quantizer import KV_CACHE_DTYPES, QUANTIZERS


@pytest.fixture(params=["numbers", "int8", "fp8"])
def cache(request):
    """Two layers, 6 blocks of 4 tokens; no two numbers alike, or no two scales."""
    numbers = torch.arange(4 * 6 * 3 * 4 * 6.0).view(4, 6, 3, 4, 6)
    halves = list(numbers[:2].clone()), list(numbers[2:].clone())
    if request.param == "numbers":
        return KVCache(*halves)
    ours = QUANTIZERS[KV_CACHE_DTYPES[request.param]]
    (k, k_scale), (v, v_scale) = (
        map(list, zip(*map(ours.quantize, half), strict=True)) for half in halves
    )
    return KVCache(k, v, k_scale=k_scale, v_scale=v_scale)
