"""Recorded decode steps: buckets, padding rows and fixed inputs, with a recorder that needs no GPU.

The recorder keeps the function and runs it again at each replay, over the same inputs and into the
same output, as a CUDA graph does. Whatever does not come through the fixed inputs is then missing.
"""

import dataclasses
from functools import partial

import pytest
import torch

from minillm_serve.core import Batch, Request, SamplingParams, ScheduledSequence, Sequence
from minillm_serve.models.loader import load_model
from minillm_serve.runtime.attention.cascade import CascadeCosts, SharedPrefix
from minillm_serve.runtime.attention.torch_backend import TorchAttention
from minillm_serve.runtime.cuda_graphs import GraphRunner, buckets_up_to
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.torch_executor import TorchExecutor
from tests.models.tiny import prompt, random_model

P, NUM_BLOCKS, MOST, MAX_LEN = 4, 40, 9, 32
CPU = torch.device("cpu")


class Recorder:
    """Records, and notes which recording is replayed."""

    def __init__(self):
        self.replayed = []
        self.num_recordings = 0

    def __call__(self, run):
        out = run()
        rows = len(out)
        self.num_recordings += 1

        def replay():
            self.replayed.append(rows)
            out.copy_(run())
            return out

        return replay


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs")
    random_model("llama").save_pretrained(path)
    return load_model(path, dtype=torch.float64, device="cpu")


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def make(model, recorder):
    def build(*, recorded):
        cache = KVCache.allocate(
            model.config,
            num_blocks=NUM_BLOCKS,
            block_size=P,
            dtype=torch.float64,
            device=CPU,
            spare=recorded,
        )
        graphs = partial(
            GraphRunner,
            most_rows=MOST,
            table_width=MAX_LEN // P,
            max_seq_len=MAX_LEN,
            spare_block=cache.num_blocks,
            block_size=P,
            device=CPU,
            capture=recorder,
        )
        return TorchExecutor(
            model, cache, TorchAttention(), make_graphs=graphs if recorded else None
        )

    return build


def crowd(count):
    """Sequences of different lengths over a shuffled pool."""
    free = torch.randperm(NUM_BLOCKS, generator=torch.Generator().manual_seed(0)).tolist()
    sequences = []
    for i in range(count):
        ids = tuple(prompt(1 + i, seed=i))
        params = SamplingParams(temperature=0, max_tokens=None)
        sequence = Sequence(Request(request_id=str(i), prompt_token_ids=ids, params=params))
        sequence.block_table = [free.pop() for _ in range(-(-(len(ids) + 6) // P))]
        sequences.append(sequence)
    return sequences


def step(executor, sequences):
    """Lets every sequence catch up and takes its token."""
    batch = Batch(
        tuple(
            ScheduledSequence(s, s.num_computed, len(s) - s.num_computed, True) for s in sequences
        )
    )
    for s, output in zip(sequences, executor.submit(batch).wait().outputs, strict=True):
        s.num_computed = len(s)
        s.token_ids += output.token_ids


@pytest.mark.parametrize(
    ("most", "want"),
    [
        (1, [1]),
        (3, [1, 2, 3]),
        (16, [1, 2, 4, 8, 16]),
        (64, [1, 2, 4, 8, 16, 32, 48, 64]),
        (200, [1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 192, 200]),
    ],
)
def test_buckets_grow_and_end_with_the_largest_batch(most, want):
    assert buckets_up_to(most) == want


@pytest.mark.parametrize("count", range(1, MOST + 1))
def test_replayed_steps_give_the_tokens_of_steps_launched_one_by_one(make, recorder, count):
    plain, recorded = make(recorded=False), make(recorded=True)
    assert recorder.num_recordings == len(buckets_up_to(MOST))
    one, other = crowd(count), crowd(count)
    for _ in range(5):
        step(plain, one)
        step(recorded, other)
    assert [s.token_ids for s in one] == [s.token_ids for s in other]
    # The prompts are read as they come, but for a single prompt of one token, which looks like any
    # decode step; all later steps are replayed, filled up to the next bucket.
    bucket = min(b for b in buckets_up_to(MOST) if b >= count)
    assert recorder.replayed == [bucket] * (5 if count == 1 else 4)


def test_a_smaller_batch_sees_nothing_of_the_larger_one_before_it(make):
    plain, recorded = make(recorded=False), make(recorded=True)
    one, other = crowd(MOST), crowd(MOST)
    for count in (MOST, MOST, 5, 3, 1, MOST, 2):
        step(plain, one[-count:])
        step(recorded, other[-count:])
    assert [s.token_ids for s in one] == [s.token_ids for s in other]


def test_padding_rows_write_to_the_spare_block_alone(make):
    plain, recorded = make(recorded=False), make(recorded=True)
    one, other = crowd(5), crowd(5)
    for _ in range(3):
        step(plain, one)
        step(recorded, other)
    assert recorded.kv_cache.num_blocks == plain.kv_cache.num_blocks == NUM_BLOCKS
    for layer in range(len(plain.kv_cache.k)):
        for theirs, ours in (
            (plain.kv_cache.k[layer], recorded.kv_cache.k[layer]),
            (plain.kv_cache.v[layer], recorded.kv_cache.v[layer]),
        ):
            torch.testing.assert_close(ours[:NUM_BLOCKS], theirs, rtol=0, atol=1e-12)
            assert (ours[NUM_BLOCKS, :, 0] != 0).any()
            assert (ours[NUM_BLOCKS, :, 1:] == 0).all()


def test_nan_in_the_spare_block_reaches_nobody_b137(make):
    plain, recorded = make(recorded=False), make(recorded=True)
    for cache in (*recorded.kv_cache.k, *recorded.kv_cache.v):
        cache[NUM_BLOCKS:] = torch.nan
    one, other = crowd(3), crowd(3)
    for _ in range(4):
        step(plain, one)
        step(recorded, other)
    assert [s.token_ids for s in one] == [s.token_ids for s in other]


def test_a_recorded_step_is_not_told_of_shared_prefixes_and_gives_the_same_tokens(make):
    """It can only replay what it recorded: whole contexts, each for itself."""
    told, tokens = {}, []
    for recorded in (False, True):
        executor, sequences = make(recorded=recorded), crowd(4)
        backend, hints = executor.backend, told.setdefault(recorded, [])
        backend.capabilities = dataclasses.replace(
            backend.capabilities, cascade=CascadeCosts(readers=1, row=0, step=0)
        )

        def plan(metadata, backend=backend, hints=hints):
            hints.append(metadata.shared_prefixes)
            return TorchAttention.plan(backend, metadata)

        backend.plan = plan
        taken = {block for s in sequences for block in s.block_table}
        shared = [block for block in range(NUM_BLOCKS) if block not in taken][:2]
        for sequence in sequences:
            # What all begin with is written by all, to the same blocks: the same values.
            sequence.token_ids[:0] = range(1, 2 * P + 1)
            sequence.block_table[:0] = shared
        for _ in range(4):
            step(executor, sequences)
        tokens.append([s.token_ids for s in sequences])
    assert tokens[0] == tokens[1]
    prompts, *others = told[False]
    assert prompts == ()
    assert others == [(SharedPrefix((0, 1, 2, 3), 2, P),)] * 3
    assert set(told[True]) == {()}


def test_recordings_read_the_same_places_at_every_step(model, make):
    seen = {}
    executor = make(recorded=True)
    forward = executor.model.forward

    def watch(token_ids, positions, attend, num_layers=None):
        places = seen.setdefault(len(token_ids), set())
        metadata = attend.metadata
        places.add(
            tuple(
                tensor.data_ptr()
                for tensor in (
                    token_ids,
                    positions,
                    metadata.seq_lens,
                    metadata.block_tables,
                    metadata.slot_mapping,
                    metadata.query_start_loc,
                )
            )
        )
        return forward(token_ids, positions, attend)

    sequences = crowd(3)
    step(executor, sequences)  # the prompts are not replayed
    executor.model.forward = watch
    try:
        for count in (3, 2, 3, 1, 2, 1):
            step(executor, sequences[:count])
    finally:
        del executor.model.forward
    assert {rows: len(places) for rows, places in seen.items()} == {1: 1, 2: 1, 4: 1}


def test_only_steps_of_one_token_a_sequence_are_replayed(make, recorder):
    executor = make(recorded=True)
    padding_for = executor.graphs.padding_for
    sequences = crowd(3)

    def batch(*items):
        return Batch(tuple(ScheduledSequence(s, 0, n, samples) for s, n, samples in items))

    one, two, three = sequences
    assert padding_for(batch((one, 1, True))) == (1, NUM_BLOCKS)
    assert padding_for(batch((one, 1, True), (two, 2, True))) is None
    assert padding_for(batch((one, 1, True), (three, 1, False))) is None
    assert padding_for(batch((one, 1, True), (two, 1, True), (three, 1, True))) == (4, NUM_BLOCKS)
    assert padding_for(batch(*[(one, 1, True)] * MOST)) == (MOST, NUM_BLOCKS)
    assert padding_for(batch(*[(one, 1, True)] * (MOST + 1))) is None


def test_a_pending_token_is_filled_in_before_a_replay(make):
    plain, recorded = make(recorded=False), make(recorded=True)
    one, other = crowd(3), crowd(3)
    for _ in range(3):
        step(plain, one)
    step(recorded, other)
    # The second step is submitted; the third follows without anybody having seen its tokens.
    second = Batch(tuple(ScheduledSequence(s, s.num_computed, 1, True) for s in other))
    handle = recorded.submit(second)
    for s in other:
        s.num_computed += 1
        s.num_pending = 1
    third = Batch(tuple(ScheduledSequence(s, s.num_computed, 1, True) for s in other))
    outputs = recorded.submit(third).wait().outputs
    tokens = [
        (first.token_ids[0], output.token_ids[0])
        for first, output in zip(handle.wait().outputs, outputs, strict=True)
    ]
    assert tokens == [tuple(s.token_ids[-2:]) for s in one]
