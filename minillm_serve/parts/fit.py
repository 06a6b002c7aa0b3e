"""Fits parts into their slots: somebody's where one was given, ours everywhere else."""

from collections.abc import Callable
from dataclasses import dataclass

from minillm_serve.core import AdmissionPolicy, BlockAllocator, MakePrefixCache, MakeScheduler
from minillm_serve.parts.accept import fit_accept
from minillm_serve.parts.admission import fit_admission
from minillm_serve.parts.attention import fit_attention
from minillm_serve.parts.budget import fit_kv_budget
from minillm_serve.parts.kv_quantizer import fit_kv_quantizer
from minillm_serve.parts.pool import fit_block_pool
from minillm_serve.parts.prefix import fit_prefix_cache
from minillm_serve.parts.scheduler import fit_scheduler
from minillm_serve.parts.slots import Parts
from minillm_serve.runtime.attention.base import AttentionBackend
from minillm_serve.runtime.attention.registry import Needs
from minillm_serve.runtime.kv_quantizer import KVQuantizer
from minillm_serve.runtime.sizing import KVBudget
from minillm_serve.runtime.spec.accept import AcceptRule, accept_on


@dataclass(frozen=True, slots=True)
class Fitted:
    """One part for every slot, ready to build an engine with.

    Attributes:
        kv_budget: says how many blocks.
        block_pool: builds a pool of so many blocks.
        prefix_cache: builds an index of prefixes; None shares nothing.
        attention: attends.
        kv_quantizer: makes the codes of a quantized cache; None: the attention does.
        scheduler: builds a scheduler over the blocks.
        admission: builds the door.
        accept: accepts drafts, where there are any.
    """

    kv_budget: KVBudget
    block_pool: Callable[[int], BlockAllocator]
    prefix_cache: MakePrefixCache | None
    attention: AttentionBackend
    kv_quantizer: KVQuantizer | None
    scheduler: MakeScheduler
    admission: Callable[..., AdmissionPolicy]
    accept: AcceptRule


def fit_parts(
    parts: Parts,
    *,
    prefix_cache: MakePrefixCache | None,
    attention: AttentionBackend,
    scheduler: MakeScheduler,
    admission: Callable[..., AdmissionPolicy],
    needs: Needs,
) -> Fitted:
    """Checks every part at the door.

    Args:
        parts: what was given.
        prefix_cache: ours, if there is to be one.
        attention: ours.
        scheduler: ours.
        admission: ours.
        needs: what the engine asks of its attention.

    Raises:
        PartError: a part lacks something of its protocol, or fails its self-test.
    """
    return Fitted(
        kv_budget=fit_kv_budget(parts.get("kv_budget")),
        block_pool=fit_block_pool(parts.get("block_pool")),
        prefix_cache=fit_prefix_cache(parts.get("prefix_cache"), prefix_cache),
        attention=fit_attention(parts.get("attention"), attention, needs),
        kv_quantizer=fit_kv_quantizer(parts.get("kv_quantizer"), needs.kv_dtype),
        scheduler=fit_scheduler(parts.get("scheduler"), scheduler),
        admission=fit_admission(parts.get("admission"), admission),
        accept=fit_accept(parts.get("accept"), accept_on(needs.device)),
    )
