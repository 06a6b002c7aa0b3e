"""The overlapped loop under the real executor: the tokens of the plain loop, whatever is asked for.

In float64 a token does not depend on who else was in its batch: answers are compared exactly.
"""

import random
import threading

import pytest
import torch

from minillm_serve import LLM, SamplingParams
from minillm_serve.core.invariants import check_idle
from tests.models.tiny import prompt

KINDS = {
    "greedy": {"temperature": 0},
    "seeded": {"seed": 7, "temperature": 1.3},
    "filtered": {"seed": 8, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    "repetition": {"temperature": 0, "repetition_penalty": 1.7},
    "frequency": {"seed": 9, "frequency_penalty": 1.1, "presence_penalty": 0.4},
    "minimum": {"temperature": 0, "min_tokens": 9},
    "bias": {"seed": 10, "logit_bias": {5: 4.0, 6: -100}},
    "logprobs": {"temperature": 0, "logprobs": 3, "prompt_logprobs": 2},
    "stop token": {"temperature": 0, "stop_token_ids": list(range(3, 40))},
    "stop string": {"seed": 11, "temperature": 1.5, "stop": ["a", "e", "#", "5"]},
}
PARAMS = [SamplingParams(max_tokens=16, **options) for _ in range(2) for options in KINDS.values()]
PROMPTS = [prompt(1 + (7 * i) % 40, seed=i) for i in range(len(PARAMS))]


def make(tiny_dir, **options):
    options = {"dtype": "float64", "num_blocks": 128, "block_size": 4, **options}
    return LLM(tiny_dir, debug_invariants=True, **options)


def rounded(places):
    """Log probabilities without their last digits, which depend on who else was in the batch."""
    return [
        {token: (round(told.logprob, 9), told.rank) for token, told in (place or {}).items()}
        for place in places or ()
    ]


def answers(llm):
    outputs = llm.generate(PROMPTS, PARAMS, use_tqdm=False)
    check_idle(llm.engine.scheduler)
    return [
        (
            output.outputs[0].token_ids,
            output.outputs[0].text,
            output.outputs[0].finish_reason,
            rounded(output.outputs[0].logprobs),
            rounded(output.prompt_logprobs),
        )
        for output in outputs
    ]


@pytest.fixture(scope="module")
def plain(tiny_dir):
    return answers(make(tiny_dir))


@pytest.mark.parametrize("budget", [5, 512])
@pytest.mark.parametrize(("num_blocks", "block_size"), [(24, 4), (256, 4), (96, 1), (40, 16)])
def test_every_kind_of_request_gets_the_answer_of_the_plain_loop(
    tiny_dir, plain, num_blocks, block_size, budget
):
    llm = make(
        tiny_dir,
        async_scheduling=True,
        num_blocks=num_blocks,
        block_size=block_size,
        max_num_batched_tokens=budget,
    )
    assert answers(llm) == plain
    assert llm.engine.scheduler.num_preemptions > 0 or num_blocks * block_size > 96


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_in_float32_one_user_gets_the_same_tokens(tiny_dir, backend):
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    got = [
        make(tiny_dir, dtype="float32", attention_backend=backend, async_scheduling=overlapped)
        .generate(prompt(9, seed=3), params, use_tqdm=False)[0]
        .outputs[0]
        .token_ids
        for overlapped in (False, True)
    ]
    assert got[0] == got[1]


def test_users_who_leave_at_random_moments_leave_nothing_behind_and_disturb_nobody(tiny_dir, plain):
    llm = make(tiny_dir, async_scheduling=True, num_blocks=48)
    draw = random.Random(5)
    streams = [llm.stream(p, params) for p, params in zip(PROMPTS, PARAMS, strict=True)]
    texts = [""] * len(streams)
    open_ones = set(range(len(streams)))
    while open_ones:
        index = draw.choice(sorted(open_ones))
        piece = next(streams[index], None)
        texts[index] += piece or ""
        assert plain[index][1].startswith(texts[index])
        if piece is None:
            assert texts[index] == plain[index][1]
        if piece is None or draw.random() < 0.1:
            streams[index].close()
            open_ones.remove(index)
    check_idle(llm.engine.scheduler)


def test_steps_run_in_a_thread_of_their_own_with_torchs_number_of_threads(tiny_dir):
    llm = make(tiny_dir, dtype="float32", async_scheduling=True)
    seen = []
    honest = llm.engine.executor.forward

    def forward(inputs):
        seen.append((threading.current_thread().name, torch.get_num_threads()))
        return honest(inputs)

    llm.engine.executor.forward = forward
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    llm.generate("a", params, use_tqdm=False)
    assert len(seen) == 3
    assert {threads for _, threads in seen} == {torch.get_num_threads()}
    assert {name for name, _ in seen} != {threading.current_thread().name}
    assert len(set(seen)) == 1


def test_a_step_that_fails_in_its_thread_ends_its_users_and_the_engine_goes_on(tiny_dir, plain):
    llm = make(tiny_dir, async_scheduling=True)
    honest, calls = llm.engine.executor.forward, []

    def forward(inputs):
        calls.append(inputs)
        if len(calls) == 3:
            raise MemoryError("the device is full")
        return honest(inputs)

    llm.engine.executor.forward = forward
    with pytest.raises(MemoryError, match="the device is full"):
        llm.generate(PROMPTS[0], PARAMS[0], use_tqdm=False)
    check_idle(llm.engine.scheduler)
    assert answers(llm) == plain


def test_on_a_cpu_the_plain_loop_is_the_default(make_llm):
    assert not make_llm().engine.async_scheduling
    assert make_llm(async_scheduling=True).engine.async_scheduling
