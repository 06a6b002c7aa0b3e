"""Drafters that do as they are told, and how answers with and without drafts are compared."""

import random

import numpy as np
import torch

from minillm_serve.core.invariants import check_idle
from minillm_serve.runtime.spec.drafter import Proposal
from tests.models.tiny import VOCAB


class Scripted:
    """Knows the right answers, and says them, or says something else.

    Args:
        outputs: of another engine, which was asked the same.
        rights: whether each draft of a verification is to be right, again and again; or how likely
            it is that one is.
        seed: of what is left to chance.
    """

    kv_cache = None

    def __init__(self, outputs, rights, seed=0):
        self.answers = [
            (output.prompt_token_ids, answer.index, answer.token_ids)
            for output in outputs
            for answer in output.outputs
        ]
        self.rights = rights
        self.draw = random.Random(seed)

    def propose(self, items):
        return Proposal([self._guess(item) for item in items])

    def observe(self, batch, inputs, hidden):
        pass

    def _guess(self, item):
        count = item.sequence.num_output_tokens
        known = self._answer(item.sequence)[count : count + item.num_drafts]
        right = known + [5] * (item.num_drafts - len(known))  # behind the end it knows nothing
        return [
            token if self._is_right(place) else (token + self.draw.randrange(1, VOCAB)) % VOCAB
            for place, token in enumerate(right)
        ]

    def _answer(self, sequence):
        """The one that begins like this."""
        begun, prompt = sequence.output_token_ids, list(sequence.request.prompt_token_ids)
        for asked, index, answer in self.answers:
            if (asked, index) == (prompt, sequence.index) and answer[: len(begun)] == begun:
                return answer
        return []

    def _is_right(self, place):
        if isinstance(self.rights, float):
            return self.draw.random() < self.rights
        return self.rights[place % len(self.rights)]


class Always:
    """Always drafts the same token."""

    kv_cache = None

    def __init__(self, token):
        self.token = token

    def propose(self, items):
        return Proposal([[self.token] * item.num_drafts for item in items])

    def observe(self, batch, inputs, hidden):
        pass


class Draws:
    """Draws its drafts from one distribution, whatever the text, and tells which.

    Args:
        q: of every token of the vocabulary.
        told: the distribution that it says they came from; by default the truth.
    """

    kv_cache = None

    def __init__(self, q, told=None, seed=0):
        self.q = q
        self.told = torch.tensor(q if told is None else told, dtype=torch.float32)
        self.draw = np.random.default_rng(seed)

    def propose(self, items):
        most = max(item.num_drafts for item in items)
        drafts = self.draw.choice(len(self.q), (len(items), most), p=self.q)
        rows = [row[: item.num_drafts] for row, item in zip(drafts.tolist(), items, strict=True)]
        probs = self.told.expand(len(items), most, -1)
        return Proposal(rows, tuple(range(len(items))), probs)

    def observe(self, batch, inputs, hidden):
        pass


def ask(llm, prompts, asked, **options):
    """Answers, from an engine that holds nothing afterwards."""
    outputs = llm.generate(prompts, asked, use_tqdm=False, **options)
    check_idle(llm.engine.scheduler)
    return outputs


def told(output):
    """Everything that is exact of the answers to a prompt."""
    return [
        (a.token_ids, a.text, a.finish_reason, a.stop_reason, a.text_offsets, ranks(a.logprobs))
        for a in output.outputs
    ]


def ranks(entries):
    return entries and [{t: e.rank for t, e in (entry or {}).items()} for entry in entries]


def check_same(outputs, wanted):
    """The same answers; the same log probabilities but for the last digits."""
    for got, right in zip(outputs, wanted, strict=True):
        assert told(got) == told(right)
        pairs = [(got.prompt_logprobs, right.prompt_logprobs)]
        pairs += [(a.logprobs, b.logprobs) for a, b in zip(got.outputs, right.outputs, strict=True)]
        for ours, theirs in pairs:
            assert ranks(ours) == ranks(theirs)
            for mine, other in zip(ours or (), theirs or (), strict=True):
                for token in mine or ():
                    assert abs(mine[token].logprob - other[token].logprob) < 1e-9
