"""The embedded model answers alike with drafts and without, near ties apart (see `DESIGN`)."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from minillm_serve import LLM, SamplingParams
from minillm_serve.core.invariants import check_idle
from tests.llm.test_parity import TEXTS, first_differences

pytestmark = pytest.mark.model

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
METHODS = ["ngram", "early_exit", "eagle"]
ALL = [*METHODS, "auto"]


class Plain:
    """Answers without drafts, and transformers' model for where others differ."""

    def __init__(self, num_turns):
        llm = LLM()
        texts = [" ".join([text] * (1 + turn)) for turn in range(num_turns) for text in TEXTS]
        self.prompts = [llm.tokenizer.encode(text) for text in texts]
        self.answers = answers(llm, self.prompts)
        self.path = llm.model_path

    def check(self, method, most):
        """In a pool that is too small for all, with as many drafts as there are room for."""
        config = {"method": method, "num_speculative_tokens": most, "adaptive": False}
        room = max(map(len, self.prompts)) + 240
        llm = LLM(
            block_size=4, num_blocks=room // 4, speculative_config=config, debug_invariants=True
        )
        got = answers(llm, self.prompts)
        assert llm.engine.scheduler.num_preemptions > 0
        assert llm.spec_stats.num_accepted_tokens > 20
        assert [len(answer) for answer in got] == [24] * len(self.prompts)
        pairs = zip(self.prompts, got, self.answers, strict=True)
        differing = [(prompt, answer) for prompt, answer, plain in pairs if answer != plain]
        if differing:
            model = AutoModelForCausalLM.from_pretrained(self.path, dtype=torch.float32).eval()
            ties, faults = first_differences(model, *zip(*differing, strict=True))
            assert not faults
            assert len(ties) <= 1, f"near ties in {len(ties)} of {len(got)} answers: {ties}"


def answers(llm, prompts):
    outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    check_idle(llm.engine.scheduler)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.fixture(scope="module")
def plain():
    return Plain(2)


@pytest.fixture(scope="module")
def plain_of_many():
    return Plain(8)


@pytest.mark.parametrize(
    ("method", "most"), [*((method, most) for method in METHODS for most in (1, 5)), ("auto", 5)]
)
def test_the_embedded_model_answers_16_prompts_alike_in_a_crowded_pool_b29(plain, method, most):
    """B29: who is preempted among drafts goes on as if undisturbed."""
    plain.check(method, most)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("most", [1, 3, 5, 8])
def test_the_embedded_model_answers_64_prompts_alike_in_a_crowded_pool_b29(
    plain_of_many, method, most
):
    plain_of_many.check(method, most)


def two_samples_p_value(one, other):
    """Whether two samples of as many tokens come from the same distribution: by chi-square.

    The 40 tokens that are most frequent in both together count each for itself, all others as one.
    """
    both = torch.cat([one, other])
    frequent = both.bincount().topk(40).indices
    tables = [(sample[:, None] == frequent).sum(dim=0).double() for sample in (one, other)]
    a, b = (torch.cat([table, (len(one) - table.sum())[None]]) for table in tables)
    kept = a + b > 0
    statistic = ((a - b)[kept] ** 2 / (a + b)[kept]).sum()
    return float(torch.special.gammaincc((kept.sum().double() - 1) / 2, statistic / 2))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("method", ALL[1:])
def test_the_embedded_models_draws_are_distributed_alike_b62(method):
    """B62: three tokens of 2,000 requests without seeds, whose drafts are drawn."""
    config = {"method": method, "num_speculative_tokens": 2, "adaptive": False}
    params = SamplingParams(n=1000, max_tokens=3, temperature=0.8, top_p=0.95, ignore_eos=True)

    def draw(**options):
        llm = LLM(num_blocks=400, **options)
        prompt = llm.tokenizer.encode(TEXTS[2])
        outputs = llm.generate([prompt, prompt], params, use_tqdm=False)
        tokens = [answer.token_ids for output in outputs for answer in output.outputs]
        return torch.tensor(tokens), llm.spec_stats

    (plain, _), (drafted, stats) = draw(seed=1), draw(seed=2, speculative_config=config)
    assert plain.shape == drafted.shape == (2000, 3)
    assert stats.num_drafts >= 2000
    assert 0.1 < stats.acceptance_rate < 0.95
    for place in range(3):
        assert two_samples_p_value(plain[:, place], drafted[:, place]) > 1e-4
    # The test can fail: the second token is distributed otherwise than the first.
    assert two_samples_p_value(plain[:, 0], drafted[:, 1]) < 1e-9
