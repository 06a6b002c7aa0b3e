"""Steps that nobody asked for, before the first request."""

import pytest

from minillm_serve import SamplingParams

PARAMS = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, logprobs=2)
PROMPTS = [[5, 6, 7, 8, 9] * 3, [5, 6, 7], [9] * 20]


def answers(llm):
    outputs = llm.generate(PROMPTS, PARAMS, use_tqdm=False)
    return [(answer.token_ids, answer.logprobs) for o in outputs for answer in o.outputs]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_blocks": 8, "max_num_seqs": 3},
        {"max_num_batched_tokens": 3, "max_num_seqs": 3, "max_num_waiting": 3},
        {"prefix_cache": "radix", "speculative_config": "ngram"},
        {"attention_backend": "naive", "prefix_cache": None},
    ],
    ids=str,
)
def test_it_leaves_no_trace(make_exact, options):
    plain, warm = make_exact(**options), make_exact(**options)
    steps = []
    warm.engine.on_step = steps.append
    warm.warm_up()
    assert steps == []
    assert warm.engine.pace.tokens_per_second is None
    assert warm.engine.scheduler.blocks.num_used == 0
    assert answers(warm) == answers(plain)
    assert warm.prefix_stats == plain.prefix_stats


def test_what_was_cached_is_forgotten_rather_than_spoiled(make_exact):
    llm = make_exact()
    first = answers(llm)
    llm.warm_up()
    assert answers(llm) == first


def test_it_is_refused_while_somebody_is_served(make_exact):
    llm = make_exact()
    stream = llm.stream(PROMPTS[0], PARAMS)
    next(stream)
    with pytest.raises(RuntimeError, match="idle engine: call it before"):
        llm.warm_up()
