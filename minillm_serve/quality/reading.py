"""Reads a text through a model and its KV cache: what it expects after each token.

The text comes in chunks, as in the engine. So what a later chunk attends to has been written to the
cache and is read back from it, in as few bits as it has there. (A text in one piece would do as
well: a step attends to the cache, its own rows included, see `runtime.kv_quantizer`.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.request import Request
from minillm_serve.core.request import Sequence as Grown
from minillm_serve.llm import LLM
from minillm_serve.models.transformer import Attend, Transformer
from minillm_serve.runtime.attention.base import AttentionBackend, PagedAttention
from minillm_serve.runtime.forward import Forward
from minillm_serve.runtime.inputs import build_inputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.kv_quantizer import KVQuantizer
from minillm_serve.runtime.torch_executor import TorchExecutor

#: Tokens of a step.
CHUNK = 128
BLOCK_SIZE = 16

#: What becomes of a layer's keys and values [T, H_kv, D] on their way into the cache.
Store = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Reading:
    """A text that was read.

    Attributes:
        token_ids: the text.
        hidden: [L, hidden], what the model made of each token, before its output head.
        head: makes logits of it.
    """

    token_ids: tuple[int, ...]
    hidden: Tensor
    head: Callable[[Tensor], Tensor]

    def with_logits(self) -> "Reading":
        """The same, all logits [L, V] worked out: worth it if it is compared again and again."""
        with torch.inference_mode():
            return Reading(self.token_ids, self.head(self.hidden), lambda logits: logits)

    def log_probs(self, rows: slice) -> Tensor:
        """The distributions of the next token after some of the tokens: [R, V] float32."""
        return self.head(self.hidden[rows]).float().log_softmax(-1)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads by a model, with keys and values in a certain dtype.

    Attributes:
        model: in evaluation mode.
        backend: attends.
        kv_dtype: of the cache.
        quantizer: somebody's own that makes its codes.
        store: instead, what becomes of keys and values before they are written; with it one can
            try roundings that the engine does not have, or round one layer alone.
        chunk: tokens of a step.
    """

    model: Transformer
    backend: AttentionBackend
    kv_dtype: torch.dtype
    quantizer: KVQuantizer | None = None
    store: Store | None = None
    chunk: int = CHUNK

    @classmethod
    def of(cls, llm: LLM, *, chunk: int = CHUNK, store: Store | None = None) -> "Reader":
        """With the model, the attention and the kind of cache that an engine has.

        The cache itself is another one, so the engine may be at work, and keeps its prefixes.
        """
        executor = llm.engine.executor
        assert isinstance(executor, TorchExecutor)
        cache = llm.kv_cache
        kind, backend = cache.k[0].dtype, executor.backend
        return cls(executor.model, backend, kind, cache.quantizer, store, chunk)

    @torch.inference_mode()
    def read(self, token_ids: Sequence[int]) -> Reading:
        """Runs the model over a text.

        Raises:
            ValueError: there is no text, or more of it than the model can take.
        """
        limit = self.model.config.max_position_embeddings
        if not 0 < len(token_ids) <= limit:
            raise ValueError(f"a text of {len(token_ids)} tokens: the model reads 1 to {limit}")
        cache = KVCache.allocate(
            self.model.config,
            num_blocks=-(-len(token_ids) // BLOCK_SIZE),
            block_size=BLOCK_SIZE,
            dtype=self.kv_dtype,
            device=self.model.device,
            quantizer=self.quantizer,
        )
        forward = Forward(self.model, cache, self.backend, max_model_len=len(token_ids))
        whole = Grown(Request(request_id="text", prompt_token_ids=tuple(token_ids)))
        whole.block_table = list(range(cache.num_blocks))
        hidden = []
        for start in range(0, len(token_ids), self.chunk):
            count = min(self.chunk, len(token_ids) - start)
            batch = Batch((ScheduledSequence(whole, start, count, False),))
            inputs = build_inputs(batch, block_size=BLOCK_SIZE, device=self.model.device)
            attend = forward.attend(inputs.positions, inputs.attention)
            if self.store is not None:
                paged = attend if isinstance(attend, PagedAttention) else attend.paged
                hidden.append(
                    self.model(inputs.token_ids, inputs.positions, _storing(paged, self.store))
                )
            else:
                hidden.append(self.model(inputs.token_ids, inputs.positions, attend))
        return Reading(tuple(token_ids), torch.cat(hidden), self.model.logits)


def _storing(paged: PagedAttention, store: Store) -> Attend:
    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return paged(layer, q, *store(layer, k, v))

    return attend
