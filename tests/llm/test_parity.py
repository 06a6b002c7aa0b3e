"""Greedy output equals transformers', near ties apart (`DESIGN`: 'the same tokens')."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from minillm_serve import LLM, SamplingParams
from tests.llm.tiny import save_tiny
from tests.models.tiny import prompt

NEAR_TIE = 1e-3

TEXTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village between two rivers, there lived a clockmaker who",
    "Question: what is 12 * 12?\nAnswer:",
    "Water boils at",
    "The three laws of thermodynamics say, in short, that energy is kept, that entropy grows, and",
    "A short list of fruits:\n1. apple\n2.",
    "Yes",
]


def first_differences(model, prompts, answers):
    """Follows our answers in transformers: near ties, and differences that are none.

    Our token must be the most likely after the tokens before it. Where the best two logits lie
    within `NEAR_TIE`, either is right, and what follows a different choice is not compared.
    """
    ties, faults = [], []
    for number, (given, answer) in enumerate(zip(prompts, answers, strict=True)):
        with torch.inference_mode():
            logits = model(torch.tensor([given + answer])).logits[0, len(given) - 1 : -1]
        best = logits.max(-1)
        for step, token in enumerate(answer):
            if best.indices[step] == token:
                continue
            gap = (best.values[step] - logits[step, token]).item()
            (ties if gap <= NEAR_TIE else faults).append((number, step, gap))
            break
    return ties, faults


@pytest.fixture(scope="module")
def embedded():
    """The embedded model in transformers, and 32 prompts of 1 to some 200 tokens."""
    llm = LLM(num_blocks=8)
    prompts = [
        llm.tokenizer.encode(" ".join([text] * (1 + 2 * turn)))
        for turn in range(4)
        for text in TEXTS
    ]
    model = AutoModelForCausalLM.from_pretrained(llm.model_path, dtype=torch.float32).eval()
    return model, prompts


def check_embedded(embedded, block_size, budget):
    model, prompts = embedded
    # A small budget lets few run at once, and they need a small pool to get in each other's way.
    pool = max(map(len, prompts)) + (48 if budget < 100 else 330)
    llm = LLM(
        block_size=block_size,
        num_blocks=pool // block_size,
        max_num_batched_tokens=budget,
        debug_invariants=True,
    )
    params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert llm.engine.scheduler.num_preemptions > 0
    answers = [output.outputs[0].token_ids for output in outputs]
    assert [len(answer) for answer in answers] == [32] * 32
    ties, faults = first_differences(model, prompts, answers)
    assert not faults
    assert len(ties) <= 1, f"near ties in {len(ties)} of 32 answers: {ties}"


@pytest.mark.model
def test_the_embedded_model_answers_like_transformers_in_a_crowded_pool(embedded):
    check_embedded(embedded, block_size=4, budget=512)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("budget", [7, 512])
def test_the_embedded_model_answers_like_transformers_everywhere(embedded, block_size, budget):
    check_embedded(embedded, block_size, budget)


FEATURES = {
    "llama": ("llama", {}),
    "llama3-rope": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "mistral-window": ("mistral", {"sliding_window": 9}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
}


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("backend", ["naive", "torch", "cpu"])
def test_every_architecture_answers_like_transformers(tmp_path, name, backend):
    model_type, options = FEATURES[name]
    path = save_tiny(tmp_path, model_type, **options)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    prompts = [prompt(length, seed=length) for length in (1, 5, 16, 17, 40)]
    llm = LLM(
        path,
        attention_backend=backend,
        block_size=4,
        num_blocks=24,
        max_num_batched_tokens=13,
        debug_invariants=True,
    )
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert llm.engine.scheduler.num_preemptions > 0
    answers = [output.outputs[0].token_ids for output in outputs]
    ties, faults = first_differences(model, prompts, answers)
    assert (ties, faults) == ([], [])


@pytest.mark.parametrize("backend", ["naive", "torch"])
def test_in_float64_the_tokens_are_the_same_however_they_are_batched(tiny_dir, backend):
    prompts = [prompt(length, seed=length) for length in (1, 3, 8, 21, 50)]
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)

    def answers(**options):
        llm = LLM(
            tiny_dir,
            dtype="float64",
            attention_backend=backend,
            debug_invariants=True,
            **options,
        )
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return [output.outputs[0].token_ids for output in outputs]

    plain = answers(num_blocks=64)
    for block_size in (1, 5, 16):
        for budget in (7, 512):
            crowded = answers(
                block_size=block_size,
                num_blocks=-(-96 // block_size),
                max_num_batched_tokens=budget,
            )
            assert crowded == plain
