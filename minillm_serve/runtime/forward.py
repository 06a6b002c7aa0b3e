"""A model on its KV cache: rows of tokens in, what the model makes of them out."""

from torch import Tensor

from minillm_serve.models.transformer import Transformer
from minillm_serve.runtime.attention.base import (
    AttentionBackend,
    AttentionMetadata,
    FusedPagedAttention,
    PagedAttention,
)
from minillm_serve.runtime.kv_cache import KVCache


class Forward:
    """Runs a model over the rows of a step.

    Args:
        model: in evaluation mode, on the cache's device.
        kv_cache: written, and read.
        backend: attends.
        max_model_len: no position reaches it; by default the model's own limit.
    """

    def __init__(
        self,
        model: Transformer,
        kv_cache: KVCache,
        backend: AttentionBackend,
        *,
        max_model_len: int | None = None,
    ) -> None:
        self.model = model
        self.kv_cache = kv_cache
        self.backend = backend
        length = max_model_len or model.config.max_position_embeddings
        self._write_rotated = None
        if kv_cache.quantizer is None:  # somebody's own takes keys as they are
            self._write_rotated = backend.rotating_writer(model.frequencies, length)

    def attend(
        self, positions: Tensor, metadata: AttentionMetadata
    ) -> PagedAttention | FusedPagedAttention:
        """What happens between the rows of a step.

        Args:
            positions: [T] int64.
            metadata: which rows are whose.
        """
        config = self.model.config
        paged = PagedAttention(
            self.backend,
            self.kv_cache,
            metadata,
            scale=config.head_dim**-0.5,
            windows=config.sliding_windows,
        )
        if self._write_rotated is None:
            return paged
        return FusedPagedAttention(paged, positions, self._write_rotated)

    def hidden(
        self,
        token_ids: Tensor,
        positions: Tensor,
        metadata: AttentionMetadata,
        *,
        num_layers: int | None = None,
    ) -> Tensor:
        """What the last layer gives, after the final norm: [T, hidden].

        Args:
            token_ids: [T] int64.
            positions: [T] int64.
            metadata: which rows are whose.
            num_layers: leave after so many layers; by default after all.
        """
        attend = self.attend(positions, metadata)
        return self.model(token_ids, positions, attend, num_layers=num_layers)
