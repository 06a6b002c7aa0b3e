"""What a KV cache holds, to be compared."""

from minillm_serve.runtime.kv_quantizer import as_bits


def everything(cache):
    return [*map(as_bits, (*cache.k, *cache.v)), *cache.k_scale, *cache.v_scale]
