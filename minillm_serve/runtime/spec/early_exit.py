"""Drafts by the model's own first layers."""

from torch import Tensor

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.runtime.forward import Forward
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.drafter import Proposal
from minillm_serve.runtime.spec.passes import draft
from minillm_serve.runtime.spec.rows import Rows


class EarlyExitDrafter:
    """Leaves the model early: some layers, then the final norm and the head, as if that were all.

    It needs no weights, no training and no memory of its own (Zhang et al. 2023, arXiv:2309.08168;
    LayerSkip: Elhoushi et al. 2024, arXiv:2404.16710). The keys and values of its layers are the
    model's: those of all tokens before are there, and what it writes for a draft is just what
    verification writes there again. But a model that was not trained to be left early says little
    before its last layers, and each draft reads the whole output head.

    Args:
        forward: the model on its cache.
        num_layers: E, how many layers to run.

    Raises:
        ValueError: the model has not so many layers.
    """

    kv_cache: KVCache | None = None
    vocabulary: Tensor | None = None

    def __init__(self, forward: Forward, num_layers: int) -> None:
        most = forward.model.config.num_layers
        if not 1 <= num_layers <= most:
            raise ValueError(
                f"num_layers={num_layers}: the model has {most}, leave after 1..{most}"
            )
        self.num_layers = num_layers
        self._forward = forward

    def propose(self, items: list[ScheduledSequence]) -> Proposal:
        """See `Drafter.propose`."""
        return draft(self, items, self._forward.kv_cache, self._forward.model.config.vocab_size)

    def observe(self, batch: Batch, inputs: StepInputs, hidden: Tensor) -> None:
        """Has nothing to do: the model's cache is its own."""

    def begin(self, items: list[ScheduledSequence]) -> tuple[list[int], None]:
        """See `Draftsman`: what the model has not computed yet, the last token as a rule."""
        return [item.start for item in items], None

    def run(self, rows: Rows, before: Tensor | None) -> Tensor:
        """See `Draftsman`."""
        return self._forward.hidden(*rows, num_layers=self.num_layers)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Draftsman`."""
        return self._forward.model.logits(hidden)
