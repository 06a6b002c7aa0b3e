"""A random crowd whose prompts begin alike, with too little memory, and steps that fail."""

from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from minillm_serve.core import (
    POLICIES,
    ContinuousScheduler,
    DynamicScheduler,
    FinishReason,
    RequestRefused,
    SequenceOutput,
    StaticScheduler,
    StepResult,
    SwapSpace,
)
from minillm_serve.core.invariants import check_idle, check_invariants
from tests.core.deferred import DeferredExecutor
from tests.core.guessing import speculations
from tests.core.ledger import Ledger
from tests.core.machine import CountingMachine
from tests.core.oracle import VOCAB, expected_tokens, make_engine, nothing, request


class Breakdown(Exception):
    """A step that failed."""


class Unreliable(DeferredExecutor):
    """Fails when told to: a whole step, whose blocks then hold rubbish, or one of its sequences."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.next_fails = self.one_fails = False
        self.failed = lambda step: None

    def run_one(self) -> None:
        if self.next_fails:
            self.next_fails = False
            self.break_down()
        step = self.queue[0]
        super().run_one()
        if self.one_fails:
            self.one_fails = False
            outputs = list(step.result.outputs)
            outputs[-1] = SequenceOutput(error="spoilt")
            step.result = StepResult(tuple(outputs))

    def break_down(self):
        step = self.queue.popleft()
        self.sampled = dict.fromkeys(step.sequences, 0)  # whatever comes next, it does not matter
        for block in self.written(step):
            self.memory[block] = [-1] * self.block_size
        self.failed(step)
        raise Breakdown

    def written(self, step) -> set[int]:
        """Blocks that a step writes to."""
        blocks = {target for _, target in (*step.copies, *step.swaps[1])}
        for (start, end, _), table in zip(step.slices, step.tables, strict=True):
            blocks.update(table[i // self.block_size] for i in range(start, end))
        return blocks


class SharingMachine(CountingMachine):
    """Prompts are pieces of two texts; some continue an answer; some want several answers.

    Everybody must get what a lone sequence without any sharing would generate.
    """

    kind: str | None = None

    @initialize(
        num_blocks=st.integers(2, 14),
        num_host_blocks=st.sampled_from([0, 0, 4, 10]),
        block_size=st.sampled_from([1, 2, 4, 5]),
        seqs=st.integers(1, 6),
        budget=st.integers(1, 20),
        scheduler=st.sampled_from([ContinuousScheduler] * 4 + [StaticScheduler, DynamicScheduler]),
        policy=st.sampled_from([make() for make in POLICIES.values()]),
        overlapped=st.booleans(),
        eos=st.sets(st.integers(0, VOCAB - 1), max_size=4),
        speculation=speculations,
        texts=st.lists(
            st.lists(st.integers(0, 2), min_size=24, max_size=24), min_size=2, max_size=2
        ),
        choices=st.randoms(use_true_random=False),
    )
    def start(
        self,
        num_blocks,
        num_host_blocks,
        block_size,
        seqs,
        budget,
        scheduler,
        policy,
        overlapped,
        eos,
        speculation,
        texts,
        choices,
    ):
        self.now = 0.0
        guess = speculation.get("guess", nothing)
        self.executor = Unreliable(num_blocks, block_size, num_host_blocks, guess)
        self.executor.failed = self.note_breakdown
        self.cache = Ledger(self.kind, block_size) if self.kind is not None else None
        self.engine = make_engine(
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=seqs,
            max_num_batched_tokens=budget,
            executor=self.executor,
            scheduler=partial(scheduler, policy=policy),
            prefix_cache=self.cache,
            lengths=speculation.get("lengths"),
            async_scheduling=overlapped and not speculation,
            eos_token_ids=eos,
            clock=lambda: self.now,
        )
        if num_host_blocks:
            space = SwapSpace(num_host_blocks, lambda tokens, blocks: choices.random() < 0.7)
            self.engine.scheduler.blocks.swap_space = space
        self.eos, self.texts = eos, texts
        self.names, self.prompts = 0, {}
        self.wanted, self.got = {}, {}  # of each request, a list for each answer
        self.condemned: set[str] = set()

    @rule(
        text=st.integers(0, 1),
        length=st.integers(1, 24),
        tail=st.lists(st.integers(0, 1), max_size=2),
        max_tokens=st.one_of(st.none(), st.integers(1, 12)),
        n=st.sampled_from([1, 1, 2, 3]),
        salt=st.sampled_from([None, None, "x"]),
        patience=st.sampled_from([None, None, 3]),
        priority=st.integers(0, 1),
    )
    def arrive(self, text, length, tail, max_tokens, n, salt, patience, priority):
        self.ask(self.texts[text][:length] + tail, max_tokens, n, salt, patience, priority)

    @precondition(lambda self: self.prompts)
    @rule(data=st.data(), tail=st.lists(st.integers(0, 1), max_size=3))
    def go_on(self, data, tail):
        """Somebody sends an old prompt with its answer, and more."""
        name = data.draw(st.sampled_from(sorted(self.prompts)))
        self.ask(self.prompts[name] + self.wanted[name][0] + tail, 4, 1, None, None, 0)

    def ask(self, prompt, max_tokens, n, salt, patience, priority):
        self.names += 1
        name = f"r{self.names}"
        room = self.engine.admission.max_len - len(prompt)
        deadline = None if patience is None else self.now + patience
        options = {"priority": priority, "deadline": deadline, "cache_salt": salt}
        try:
            self.engine.add_request(request(name, prompt, max_tokens, n=n, **options))
        except RequestRefused:
            assert room < 1
            return
        count = room if max_tokens is None else min(room, max_tokens)
        self.prompts[name], self.wanted[name] = prompt, []
        for index in range(n):
            tokens = expected_tokens(prompt, count, index)
            ends = [i + 1 for i, token in enumerate(tokens) if token in self.eos]
            self.wanted[name].append(tokens[: min(ends, default=count)])
        self.got[name] = {index: [] for index in range(n)}

    @precondition(lambda self: self.engine.has_unfinished)
    @rule(times=st.integers(1, 6), seconds=st.sampled_from([0, 0, 0, 2]))
    def step(self, times, seconds):
        for _ in range(times):
            self.take_step()
        self.now += seconds

    @precondition(lambda self: self.engine.has_unfinished)
    @rule(whole=st.booleans())
    def fail(self, whole):
        """The next step fails, or one of its sequences does."""
        self.executor.next_fails, self.executor.one_fails = whole, not whole

    def take_step(self):
        try:
            updates = self.engine.step()
        except Breakdown:
            gone = {name for name in self.got if name not in self.engine.metrics}
            assert gone == self.condemned
            updates = []
        for name in self.condemned:
            del self.got[name]
        self.condemned = set()
        for update in updates:
            self.take(update)
        self.check()

    def take(self, update):
        answers, index = self.got[update.request_id], update.index
        answers[index] += update.new_token_ids
        wanted = self.wanted[update.request_id][index]
        if update.finish_reason is None:
            return
        got = answers.pop(index)
        if update.finish_reason is FinishReason.ERROR:
            assert update.sequence.error == "spoilt"
            assert got == wanted[: len(got)]
        else:
            assert got == ([] if update.finish_reason is FinishReason.DEADLINE else wanted)
        if not answers:
            del self.got[update.request_id]

    def note_breakdown(self, step):
        """Those are lost who took part, or name a block that should have been written."""
        scheduler, rubbish = self.engine.scheduler, self.executor.written(step)
        everybody = (*scheduler.running, *scheduler.leaving, *scheduler.waiting)
        moved = {block for block, _ in step.swaps[0]}
        for sequence in everybody:
            took_part = sequence in step.sequences or rubbish & set(sequence.block_table)
            swapped = moved and {b for _, b in step.swaps[0]} & set(sequence.host_table)
            if sequence.finish_reason is None and (took_part or swapped):
                self.condemned.add(sequence.request.request_id)

    @precondition(lambda self: self.got)
    @rule(data=st.data(), whole=st.booleans())
    def leave(self, data, whole):
        """A user goes, or has seen enough of one answer."""
        name = data.draw(st.sampled_from(sorted(self.got)))
        index = None if whole else data.draw(st.sampled_from(sorted(self.got[name])))
        try:
            assert self.engine.finish(name, FinishReason.ABORT, index)
        except Breakdown:  # of a step that was waited for, since nobody else is there
            assert not self.engine.has_unfinished
        answers = self.got[name]
        for i in list(answers) if whole else [index]:
            got = answers.pop(i)
            assert got == self.wanted[name][i][: len(got)]
        if not answers:
            del self.got[name]
        assert (name in self.got) == (name in self.engine.metrics)
        self.condemned.clear()
        self.check()

    @rule()
    def reset(self):
        done = self.engine.reset_prefix_cache()
        assert done == (not self.engine.has_unfinished)
        if done:
            assert self.engine.scheduler.blocks.pool.num_free == len(self.executor.memory)

    def check(self):
        scheduler, stats = self.engine.scheduler, self.engine.prefix_stats
        check_invariants(scheduler)
        if not self.engine.has_unfinished:
            check_idle(scheduler)
            assert stats.num_live == 0
        assert stats.hits <= stats.queries
        free = scheduler.blocks.pool.num_free
        assert free + stats.num_cached + stats.num_live == len(self.executor.memory)
        if self.cache is not None and not self.executor.queue:
            self.cache.check(self.executor.memory)

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        self.executor.next_fails = self.executor.one_fails = False
        for _ in range(10_000):
            if not self.engine.has_unfinished:
                break
            self.engine.flush()
            self.take_step()
        assert not self.got
        assert not self.engine.metrics
        check_idle(self.engine.scheduler)
