"""Stop strings, logprobs and text through the whole engine, on a tiny random model."""

import pytest
import torch

from minillm_serve import SamplingParams
from minillm_serve.core.invariants import check_idle


def params(**options):
    options = {"temperature": 0, "max_tokens": 40, "ignore_eos": True, **options}
    return SamplingParams(**options)


def answer(llm, prompt, **options):
    return llm.generate(prompt, params(**options), use_tqdm=False)[0].outputs[0]


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_stop_string_cuts_text_ids_and_logprobs_at_one_place_b53_b70_b97(make_llm, length):
    llm = make_llm()
    whole = answer(llm, "Hello", temperature=1, seed=1)
    stop = whole.text[7 : 7 + length]
    cut = whole.text.index(stop)
    got = answer(llm, "Hello", temperature=1, seed=1, stop=stop, logprobs=1)
    assert got.text == whole.text[:cut]
    assert (got.finish_reason, got.stop_reason) == ("stop", stop)
    assert got.token_ids == whole.token_ids[: len(got.token_ids)]
    assert len(got.logprobs) == len(got.text_offsets) == len(got.token_ids)
    assert len(got.token_ids) < len(whole.token_ids)
    assert "".join(llm.stream("Hello", params(temperature=1, seed=1, stop=stop))) == got.text
    check_idle(llm.engine.scheduler)


def test_a_stop_string_may_stay_in_the_text(make_llm):
    llm = make_llm()
    whole = answer(llm, "Hello", temperature=1, seed=1)
    stop = whole.text[7:9]
    got = answer(llm, "Hello", temperature=1, seed=1, stop=stop, include_stop_str_in_output=True)
    assert got.text == whole.text[: whole.text.index(stop) + 2]


def test_usage_counts_the_ids_that_are_returned_b52(make_llm):
    llm = make_llm()
    whole = answer(llm, "Hello", temperature=1, seed=1)
    (output,) = llm.generate(
        "Hello", params(temperature=1, seed=1, stop=whole.text[7:9]), use_tqdm=False
    )
    assert output.metrics.num_output_tokens == len(output.outputs[0].token_ids)
    assert output.metrics.finished_time is not None


def test_a_stopped_neighbour_changes_nothing_for_others(make_llm):
    llm = make_llm()
    whole = answer(llm, "Hello", temperature=1, seed=1)
    options = [params(temperature=1, seed=1, stop=whole.text[3:5]), params(temperature=1, seed=1)]
    outputs = llm.generate(["Hello", "Hello"], options, use_tqdm=False)
    assert outputs[0].outputs[0].finish_reason == "stop"
    assert outputs[1].outputs[0].text == whole.text


def test_a_stop_token_of_the_requests_own_is_named_and_eos_is_not(make_llm):
    llm = make_llm()
    whole = answer(llm, "Hello", temperature=1, seed=1)
    token = whole.token_ids[5]
    got = answer(llm, "Hello", temperature=1, seed=1, stop_token_ids=[token])
    assert (got.finish_reason, got.stop_reason) == ("stop", token)
    assert got.token_ids == whole.token_ids[: whole.token_ids.index(token) + 1]
    ended = answer(llm, "a", temperature=1, seed=3, max_tokens=400, ignore_eos=False)
    assert (ended.finish_reason, ended.stop_reason) == ("stop", None)


def test_logprobs_are_the_models_own_whatever_the_temperature(make_llm):
    llm = make_llm()
    got = answer(llm, "Hello", temperature=0.3, seed=5, logprobs=3, top_k=4)
    ids = llm.tokenizer.encode("Hello") + got.token_ids
    cold = llm.generate([ids], params(max_tokens=1, prompt_logprobs=3), use_tqdm=False)[0]
    tail = cold.prompt_logprobs[-len(got.token_ids) :]
    for mine, theirs in zip(got.logprobs, tail, strict=True):
        assert mine.keys() == theirs.keys()
        for token in mine:
            assert mine[token].logprob == pytest.approx(theirs[token].logprob, abs=1e-4)
            assert mine[token].rank == theirs[token].rank
    total = sum(e[t].logprob for t, e in zip(got.token_ids, got.logprobs, strict=True))
    assert got.cumulative_logprob == pytest.approx(total)


def test_without_the_wish_there_are_no_logprobs(make_llm):
    (output,) = make_llm().generate("Hello", params(), use_tqdm=False)
    assert output.outputs[0].logprobs is None
    assert output.prompt_logprobs is None


def test_zero_logprobs_give_the_chosen_token_alone_b96(make_llm):
    got = answer(make_llm(), "Hello", temperature=1, seed=2, logprobs=0)
    assert [list(entry) for entry in got.logprobs] == [[token] for token in got.token_ids]


def prompt_logprobs(llm, prompts):
    outputs = llm.generate(prompts, params(max_tokens=20, prompt_logprobs=2), use_tqdm=False)
    return [output.prompt_logprobs for output in outputs]


@pytest.mark.parametrize("budget", [1, 4, 1000])
def test_prompt_logprobs_do_not_depend_on_chunks_b98_b20(make_llm, budget):
    prompt = list(range(3, 23))
    (whole,) = prompt_logprobs(make_llm(), [prompt])
    (chunked,) = prompt_logprobs(make_llm(max_num_batched_tokens=budget), [prompt])
    assert whole[0] is None
    assert len(whole) == len(chunked) == 20
    for position in range(1, 20):
        assert prompt[position] in whole[position]
        for token, value in whole[position].items():
            assert chunked[position][token].logprob == pytest.approx(value.logprob, abs=1e-4)


def test_prompt_logprobs_survive_preemption_b98(make_llm):
    prompts = [list(range(3 + i, 23 + i)) for i in range(4)]
    calm = prompt_logprobs(make_llm(), prompts)
    llm = make_llm(num_blocks=14, block_size=4, max_num_batched_tokens=4)
    crowded = prompt_logprobs(llm, prompts)
    assert llm.engine.scheduler.num_preemptions > 0
    for one, other in zip(calm, crowded, strict=True):
        assert len(one) == len(other) == 20
        for a, b in zip(one[1:], other[1:], strict=True):
            for token in a:
                assert b[token].logprob == pytest.approx(a[token].logprob, abs=1e-4)


def test_penalties_survive_preemption_and_chunks_b32(make_llm):
    options = [
        params(repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2, seed=s,
               temperature=1, max_tokens=30)
        for s in range(6)
    ]  # fmt: skip
    calm = make_llm().generate(["Hello"] * 6, options, use_tqdm=False)
    llm = make_llm(num_blocks=8, block_size=8, max_num_batched_tokens=5)
    crowded = llm.generate(["Hello"] * 6, options, use_tqdm=False)
    assert llm.engine.scheduler.num_preemptions > 0
    assert [o.outputs[0].token_ids for o in crowded] == [o.outputs[0].token_ids for o in calm]


def test_min_tokens_holds_eos_back(make_llm):
    llm = make_llm()
    free = answer(llm, "a", temperature=1, seed=3, max_tokens=400, ignore_eos=False)
    length = len(free.token_ids)
    held = answer(
        llm, "a", temperature=1, seed=3, max_tokens=400, ignore_eos=False, min_tokens=length + 5
    )
    assert len(held.token_ids) >= length + 5


def test_a_bias_decides_the_answer_and_ids_beyond_the_vocabulary_are_refused_b85(make_llm):
    llm = make_llm()
    assert set(answer(llm, "a", logit_bias={9: 100}).token_ids) == {9}
    with pytest.raises(ValueError, match=r"logit_bias\[0\] is 97, expected an id"):
        answer(llm, "a", logit_bias={97: 1})
    assert len(answer(llm, "a").token_ids) == 40


def test_a_stop_token_beyond_the_vocabulary_is_refused_b86(make_llm):
    llm = make_llm()
    with pytest.raises(ValueError, match=r"stop_token_ids\[0\] is 102"):
        answer(llm, "a", stop_token_ids=[102], min_tokens=1)


def test_the_head_runs_only_for_rows_that_need_logits(make_llm):
    llm = make_llm(max_num_batched_tokens=8)
    model, rows = llm.engine.executor.model, []
    logits = model.logits

    def count(hidden: torch.Tensor) -> torch.Tensor:
        rows.append(len(hidden))
        return logits(hidden)

    model.logits = count
    llm.generate([[5] * 20], params(max_tokens=3), use_tqdm=False)
    assert rows == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("length", [7, 8, 9, 16, 17])
def test_the_logits_after_a_prompt_do_not_depend_on_where_it_was_cut_b38(make_llm, length):
    prompt = list(range(3, 3 + length))
    first = {
        budget: answer(
            make_llm(max_num_batched_tokens=budget, dtype="float64"),
            prompt,
            max_tokens=1,
            logprobs=97,
        ).logprobs[0]
        for budget in (8, 512)
    }
    assert list(first[8]) == list(first[512])
    for token, value in first[512].items():
        assert first[8][token].logprob == pytest.approx(value.logprob, abs=1e-12)
