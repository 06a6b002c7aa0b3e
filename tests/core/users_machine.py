"""A random crowd of users against a small engine; everything is checked after every step."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from minillm_serve.core import RequestRefused
from minillm_serve.core.invariants import check_idle, check_invariants
from tests.core.guessing import speculations
from tests.core.machine import CountingMachine
from tests.core.oracle import VOCAB, expected_tokens, make_engine, request


class UsersMachine(CountingMachine):
    """Some answers hold a stop token, some users leave at any moment, some engines guess ahead."""

    make = staticmethod(make_engine)
    guesses = True

    @initialize(
        num_blocks=st.integers(2, 12),
        block_size=st.sampled_from([1, 2, 4, 5]),
        seqs=st.integers(1, 5),
        budget=st.integers(1, 20),
        eos=st.sets(st.integers(0, VOCAB - 1), max_size=8),
        speculation=speculations,
    )
    def start(self, num_blocks, block_size, seqs, budget, eos, speculation):
        self.engine = self.make(
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=seqs,
            max_num_batched_tokens=budget,
            eos_token_ids=eos,
            **(speculation if self.guesses else {}),
        )
        self.eos = eos
        self.asked = {}
        self.got = {}

    @rule(
        prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=24),
        max_tokens=st.one_of(st.none(), st.integers(1, 20)),
    )
    def arrive(self, prompt, max_tokens):
        name = f"r{len(self.asked)}"
        room = self.engine.admission.max_len - len(prompt)
        try:
            self.engine.add_request(request(name, prompt, max_tokens))
        except RequestRefused:
            assert room < 1
            return
        assert room >= 1
        count = room if max_tokens is None else min(room, max_tokens)
        tokens = expected_tokens(prompt, count)
        ends = [i + 1 for i, token in enumerate(tokens) if token in self.eos]
        self.asked[name] = tokens[: min(ends, default=count)]
        self.got[name] = []

    @precondition(lambda self: self.engine.has_unfinished)
    @rule(times=st.integers(1, 6))
    def step(self, times):
        for _ in range(times):
            for update in self.engine.step():
                name = update.request_id
                self.got[name] += update.new_token_ids
                if update.finish_reason:
                    assert self.got.pop(name) == self.asked[name]

    @precondition(lambda self: self.got)
    @rule(data=st.data())
    def leave(self, data):
        name = data.draw(st.sampled_from(sorted(self.got)))
        assert self.engine.abort(name)
        tokens = self.got.pop(name)
        assert tokens == self.asked[name][: len(tokens)]
        check_invariants(self.engine.scheduler)
        if not self.engine.has_unfinished:
            check_idle(self.engine.scheduler)

    def teardown(self):
        if hasattr(self, "engine"):
            while self.engine.has_unfinished:
                self.step(1)
            assert not self.got
            check_idle(self.engine.scheduler)
