"""HOW a batch runs: torch, the KV cache, attention backends, the sampler."""
