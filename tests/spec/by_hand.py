"""Tiny models with drafters, stepped by hand: whoever is to read, decode or lose blocks is told."""

import copy
import random

import torch

from minillm_serve.core import Batch, Request, SamplingParams, ScheduledSequence, Sequence
from minillm_serve.models.config import ModelConfig
from minillm_serve.models.draft_head import DraftHead
from minillm_serve.models.transformer import Transformer
from minillm_serve.runtime.attention.torch_backend import TorchAttention
from minillm_serve.runtime.forward import Forward
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.drafter import Proposal
from minillm_serve.runtime.torch_executor import TorchExecutor
from tests.models.tiny import SHAPE, VOCAB, DenseAttend

P, NUM_BLOCKS = 4, 80
CPU = torch.device("cpu")
GREEDY = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
CONFIG = ModelConfig.from_hf({"architectures": ["LlamaForCausalLM"], **SHAPE})


def randomize(module, seed, *, scale=0.2):
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            values = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
            parameter.copy_(1 + scale * values if parameter.dim() == 1 else scale * values)
    return module.eval().requires_grad_(False)


def make_model(seed=0):
    return randomize(Transformer(CONFIG, torch.float64, CPU), seed)


def make_similar(model, seed=1, *, noise=0.06):
    """A model whose likeliest token is often, not always, the same."""
    other, draw = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            added = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
            parameter.add_(noise * parameter.abs().mean() * added)
    return other


def make_head(model, seed=2, vocabulary=range(0, VOCAB, 2)):
    return randomize(DraftHead(model, torch.tensor([*vocabulary])), seed)


def make_cache(config):
    return KVCache.allocate(
        config, num_blocks=NUM_BLOCKS, block_size=P, dtype=torch.float64, device=CPU
    )


def make_items(sequences, counts):
    """Decoding slices, with room for so many drafts each."""
    return [
        ScheduledSequence.of(sequence, 1).with_room(count)
        for sequence, count in zip(sequences, counts, strict=True)
    ]


def make_sequence(prompt, params=GREEDY, seed=0, name="a"):
    request = Request(request_id=name, prompt_token_ids=tuple(prompt), params=params)
    return Sequence(request, seed=seed)


class Watched:
    """A drafter whose proposals are noted: (tokens known, room for drafts, drafts).

    Args:
        drafter: is watched.
        instead: given the tokens known and the room, other drafts that are verified in their place.
    """

    def __init__(self, drafter, instead=None):
        self.drafter = drafter
        self.instead = instead
        self.kv_cache = drafter.kv_cache
        self.proposed = []

    def propose(self, items):
        proposal = self.drafter.propose(items)
        known = [tuple(item.sequence.token_ids) for item in items]
        rooms = [item.num_drafts for item in items]
        self.proposed += zip(known, rooms, proposal.token_ids, strict=True)
        if self.instead is not None:
            return Proposal([self.instead(*asked) for asked in zip(known, rooms, strict=True)])
        return proposal

    def observe(self, batch, inputs, hidden):
        """Shows rows of padding as well, and overwrites everything afterwards."""
        shown = torch.cat([hidden, torch.full_like(hidden[:3], torch.nan)])
        self.drafter.observe(batch, inputs, shown)
        shown.fill_(torch.nan)


class ByHand:
    """An executor, and the scheduling that a test wants.

    Args:
        model: that is drafted for.
        make_drafter: of the model on its cache.
        instead: see `Watched`.
    """

    def __init__(self, model, make_drafter, instead=None):
        cache = make_cache(model.config)
        backend = TorchAttention()
        self.drafter = Watched(make_drafter(Forward(model, cache, backend)), instead)
        self.executor = TorchExecutor(model, cache, backend, drafter=self.drafter)
        self.caches = [c for c in (cache, self.drafter.kv_cache) if c is not None]
        self.free = random.Random(0).sample(range(NUM_BLOCKS), NUM_BLOCKS)
        self.num_drafts = self.num_accepted = 0

    def step(self, slices):
        """Runs one step: of each sequence so many tokens, with room for so many drafts."""
        items = []
        for sequence, (num_tokens, num_drafts) in slices.items():
            item = ScheduledSequence.of(sequence, num_tokens).with_room(num_drafts)
            self.resize(sequence, item.end)
            items.append(item)
        outputs = self.executor.submit(Batch(tuple(items))).wait().outputs
        for item, output in zip(items, outputs, strict=True):
            sequence = item.sequence
            sequence.num_computed = item.known_end + output.num_accepted
            sequence.token_ids.extend(output.token_ids)
            self.num_drafts += len(output.draft_token_ids)
            self.num_accepted += output.num_accepted
            self.resize(sequence, min(len(sequence), len(sequence.block_table) * P))

    def resize(self, sequence, num_tokens):
        """Gives a sequence blocks for so many tokens, and takes all others away."""
        table, wanted = sequence.block_table, -(-num_tokens // P)
        while len(table) < wanted:
            table.append(self.free.pop())
        while len(table) > wanted:
            block = table.pop()
            for cache in self.caches:
                for tensor in (*cache.k, *cache.v):
                    tensor[block] = torch.nan  # nobody may rely on what is in there
            self.free.insert(0, block)

    def preempt(self, sequence, kept_blocks=0):
        """Takes blocks away; those kept stand for blocks that it will find in a prefix cache."""
        sequence.num_computed = min(sequence.num_computed, kept_blocks * P)
        self.resize(sequence, sequence.num_computed)

    def run_at_random(self, sequences, seed, *, preempt=0.1, keep_blocks=False, length=40):
        """Steps until all sequences are long: chunks, batches and drafts of any size."""
        draw = random.Random(seed)
        while running := [s for s in sequences if len(s) < length]:
            slices = {}
            for sequence in running:
                if draw.random() < preempt:
                    blocks = sequence.num_computed // P
                    self.preempt(sequence, draw.randint(0, blocks) if keep_blocks else 0)
                if draw.random() < 0.8:
                    missing = sequence.num_uncomputed
                    count = draw.choice((0, 1, 3, 4)) if missing == 1 else 0
                    slices[sequence] = draw.randint(1, missing), count
            if slices:
                self.step(slices)


def is_greedy(model, tokens, drafts, num_layers=None):
    """Whether each of some drafts is the likeliest token after all that stands before it.

    One run of the model without cache and without blocks.
    """
    hidden = dense_hidden(model, [*tokens, *drafts], num_layers)
    logits = model.logits(hidden[len(tokens) - 1 : -1])
    return logits.argmax(dim=-1).tolist() == list(drafts)


def dense_hidden(model, tokens, num_layers=None):
    ids, positions = torch.tensor(tokens), torch.arange(len(tokens))
    return model(ids, positions, DenseAttend(model.config), num_layers=num_layers)


def assert_all_greedy(model, sequences):
    """Greedy answers are the model's own, whatever was drafted."""
    for sequence in sequences:
        n = sequence.num_prompt_tokens
        assert is_greedy(model, sequence.token_ids[:n], sequence.token_ids[n:])
