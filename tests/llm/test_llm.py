"""The Python face, on a tiny random model."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from minillm_serve import LLM, SamplingParams
from minillm_serve.core.invariants import check_idle
from tests.models.tiny import VOCAB

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def ids(output):
    return output.outputs[0].token_ids


def test_outputs_are_shaped_like_vllms(make_llm):
    (output,) = make_llm().generate("Hello", GREEDY, use_tqdm=False)
    assert output.prompt == "Hello"
    assert len(output.prompt_token_ids) == 5
    answer = output.outputs[0]
    assert len(answer.token_ids) == 12
    assert answer.finish_reason == "length"
    assert isinstance(answer.text, str)
    assert output.metrics.ttft > 0
    assert output.metrics.tpot > 0


def test_results_come_in_the_order_of_the_prompts(make_llm):
    llm = make_llm()
    prompts = ["a", "bb" * 9, "ccc", "d" * 30]
    alone = [ids(llm.generate(prompt, GREEDY, use_tqdm=False)[0]) for prompt in prompts]
    together = [ids(output) for output in llm.generate(prompts, GREEDY, use_tqdm=False)]
    assert together == alone


def test_the_engine_is_used_again_with_fewer_prompts_b47(make_llm):
    llm = make_llm()
    assert len(llm.generate(["a", "b", "c", "d"], GREEDY, use_tqdm=False)) == 4
    outputs = llm.generate(["x", "y", "z"], GREEDY, use_tqdm=False)
    assert [output.prompt for output in outputs] == ["x", "y", "z"]


def test_a_prompt_may_be_ids_and_a_list_of_ids_is_one_prompt(make_llm):
    llm = make_llm()
    text = llm.generate("Hello", GREEDY, use_tqdm=False)[0]
    (one,) = llm.generate(text.prompt_token_ids, GREEDY, use_tqdm=False)
    assert ids(one) == ids(text)
    assert one.prompt is None
    several = llm.generate([[5, 6], [7], "Hello"], GREEDY, use_tqdm=False)
    assert [len(output.prompt_token_ids) for output in several] == [2, 1, 5]


def test_each_prompt_may_have_its_own_parameters(make_llm):
    params = [SamplingParams(max_tokens=n, temperature=0, ignore_eos=True) for n in (1, 5)]
    outputs = make_llm().generate(["a", "b"], params, use_tqdm=False)
    assert [len(ids(output)) for output in outputs] == [1, 5]


def test_one_bad_prompt_refuses_the_call_before_anything_runs(make_llm):
    llm = make_llm()
    with pytest.raises(ValueError, match=rf"prompt_token_ids\[0\] is {VOCAB}, expected an id"):
        llm.generate([[1, 2], [VOCAB], [3]], GREEDY, use_tqdm=False)
    check_idle(llm.engine.scheduler)
    assert len(llm.generate([[1, 2], [3]], GREEDY, use_tqdm=False)) == 2


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ("", "empty prompt"),
        ([""], "empty prompt"),
        ([[]], "empty prompt"),
        ([[-1]], "expected an id from 0"),
        (None, "prompts=None: expected a string"),
        ({"prompt_token_ids": [1]}, "expected a string, a list of token ids"),
        ([None], "NoneType: expected a string or a list of ids"),
        ([3.5], "float: expected a string or a list of ids"),
        ([["a", 1]], r"prompt_token_ids\[0\] is 'a'"),
        ([[True]], r"prompt_token_ids\[0\] is True"),
    ],
)
def test_bad_prompts_are_refused_by_name_b104_b106(make_llm, prompts, message):
    llm = make_llm()
    with pytest.raises(ValueError, match=message):
        llm.generate(prompts, GREEDY, use_tqdm=False)
    check_idle(llm.engine.scheduler)


def test_parameters_of_another_type_are_refused(make_llm):
    with pytest.raises(ValueError, match=r"sampling_params={'max_tokens': 3}: expected Sampling"):
        make_llm().generate("a", {"max_tokens": 3}, use_tqdm=False)


@pytest.mark.parametrize("messages", ["Hi", [{"role": "user"}], [{"content": "Hi"}], ["Hi"]])
def test_messages_without_role_and_content_are_refused(make_llm, messages):
    with pytest.raises(ValueError, match=r"expected {'role': ..., 'content': ...}"):
        make_llm().chat(messages, GREEDY, use_tqdm=False)


def test_threads_take_turns_and_get_their_own_answers(make_llm):
    llm = make_llm()
    prompts = ["ab", "xyz" * 5, "Hello", "q"]
    alone = [ids(llm.generate(prompt, GREEDY, use_tqdm=False)[0]) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        for _ in range(5):
            outputs = pool.map(lambda p: llm.generate(p, GREEDY, use_tqdm=False)[0], prompts)
            assert [ids(output) for output in outputs] == alone
    check_idle(llm.engine.scheduler)


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
def test_a_pool_costs_nothing_before_it_is_used(make_llm):
    before = resident_bytes()
    llm = make_llm(num_blocks=200_000)
    assert llm.kv_cache.nbytes > 2 * 10**9
    assert resident_bytes() - before < 10**9


def test_no_prompts_give_no_outputs(make_llm):
    assert make_llm().generate([], GREEDY, use_tqdm=False) == []


def test_as_many_parameters_as_prompts_are_wanted(make_llm):
    with pytest.raises(ValueError, match="3 sampling_params for 2 prompts"):
        make_llm().generate(["a", "b"], [GREEDY] * 3, use_tqdm=False)


def test_streamed_pieces_join_to_the_text(make_llm):
    llm = make_llm()
    whole = llm.generate("Hello", GREEDY, use_tqdm=False)[0].outputs[0].text
    pieces = list(llm.stream("Hello", GREEDY))
    assert "".join(pieces) == whole
    assert len(pieces) > 1


def test_two_streams_read_in_turn_get_their_own_tokens_b49(make_llm):
    llm = make_llm()
    wholes = [llm.generate(p, GREEDY, use_tqdm=False)[0].outputs[0].text for p in ("ab", "xyz")]
    streams = [llm.stream(p, GREEDY) for p in ("ab", "xyz")]
    texts = ["", ""]
    for _ in range(40):
        for index, stream in enumerate(streams):
            texts[index] += next(stream, "")
    assert texts == wholes


def test_generate_goes_between_the_pieces_of_a_stream(make_llm):
    llm = make_llm()
    whole = llm.generate("ab", GREEDY, use_tqdm=False)[0].outputs[0].text
    stream = llm.stream("ab", GREEDY)
    first = next(stream)
    other = llm.generate("xyz", GREEDY, use_tqdm=False)
    assert len(ids(other[0])) == 12
    assert first + "".join(stream) == whole


@pytest.mark.parametrize("reads", [0, 1, 3])
def test_a_stream_left_early_leaves_nothing_behind(make_llm, reads):
    llm = make_llm()
    with llm.stream("Hello", GREEDY) as stream:
        for _ in range(reads):
            next(stream)
    check_idle(llm.engine.scheduler)
    assert list(stream) == []
    stream = llm.stream("Hello", GREEDY)
    del stream
    check_idle(llm.engine.scheduler)


def test_a_stream_refuses_a_bad_prompt_at_once(make_llm):
    with pytest.raises(ValueError, match="empty prompt"):
        make_llm().stream("")


def test_an_interrupted_call_leaves_the_engine_usable(make_llm):
    llm = make_llm()
    steps = []

    def interrupt(record):
        steps.append(record)
        if len(steps) == 3:
            raise KeyboardInterrupt

    llm.engine.on_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a", "b"], GREEDY, use_tqdm=False)
    check_idle(llm.engine.scheduler)
    llm.engine.on_step = None
    assert len(ids(llm.generate("a", GREEDY, use_tqdm=False)[0])) == 12


def test_chat_renders_the_template_without_a_second_bos_b115(make_llm):
    llm = make_llm()
    (output,) = llm.chat([{"role": "user", "content": "Hi"}], GREEDY, use_tqdm=False)
    text = llm.tokenizer.decode(output.prompt_token_ids)
    assert text == "<s>user: Hi\n<s>assistant: "
    several = llm.chat([[{"role": "user", "content": c}] for c in "ab"], GREEDY, use_tqdm=False)
    assert len(several) == 2


def test_chat_without_messages_is_refused_b104(make_llm):
    with pytest.raises(ValueError, match="messages is empty"):
        make_llm().chat([], GREEDY)


def test_special_tokens_stay_in_the_ids_and_out_of_the_text(make_llm):
    llm = make_llm()
    params = SamplingParams(temperature=1, seed=3, max_tokens=400, ignore_eos=True)
    (output,) = llm.generate("a", params, use_tqdm=False)
    assert {0, 1, 2} & set(ids(output))
    assert "<" + "s>" not in output.outputs[0].text.replace("<s >", "")


def test_eos_ends_an_answer(make_llm):
    llm = make_llm()
    params = SamplingParams(temperature=1, seed=3, max_tokens=400)
    answer = llm.generate("a", params, use_tqdm=False)[0].outputs[0]
    assert answer.finish_reason == "stop"
    assert answer.token_ids[-1] == 2
    assert 2 not in answer.token_ids[:-1]


def test_a_seed_decides_the_draws_whatever_the_batch_b91_b92(make_llm):
    params = SamplingParams(temperature=1, seed=42, max_tokens=20, ignore_eos=True)
    llm = make_llm()
    alone = ids(llm.generate("Hello", params, use_tqdm=False)[0])
    assert ids(llm.generate("Hello", params, use_tqdm=False)[0]) == alone
    neighbours = SamplingParams(temperature=1, max_tokens=30, ignore_eos=True, top_p=0.9)
    outputs = llm.generate(["x" * 9, "Hello"], [neighbours, params], use_tqdm=False)
    assert ids(outputs[1]) == alone


@pytest.mark.parametrize("budget", [1, 4, 1000])
def test_a_seed_decides_the_draws_whatever_the_chunks_b37(make_llm, budget):
    params = SamplingParams(temperature=1, seed=42, max_tokens=20, ignore_eos=True)
    plain = ids(make_llm().generate("Hello world, once more", params, use_tqdm=False)[0])
    llm = make_llm(max_num_batched_tokens=budget)
    assert ids(llm.generate("Hello world, once more", params, use_tqdm=False)[0]) == plain


def test_a_seed_decides_the_draws_despite_preemption_b91(make_llm):
    params = [
        SamplingParams(temperature=1, seed=seed, max_tokens=30, ignore_eos=True)
        for seed in range(6)
    ]
    calm = make_llm().generate(["Hello"] * 6, params, use_tqdm=False)
    llm = make_llm(num_blocks=8, block_size=8)
    crowded = llm.generate(["Hello"] * 6, params, use_tqdm=False)
    assert llm.engine.scheduler.num_preemptions > 0
    assert [ids(o) for o in crowded] == [ids(o) for o in calm]


def test_two_engines_with_one_seed_draw_the_same(make_llm):
    params = SamplingParams(temperature=1, max_tokens=20, ignore_eos=True)
    first, second, third = (
        [ids(o) for o in make_llm(seed=seed).generate(["a", "a"], params, use_tqdm=False)]
        for seed in (5, 5, 6)
    )
    assert first == second != third
    assert first[0] != first[1]


def test_nan_weights_end_requests_with_an_error_b68(make_llm):
    llm = make_llm()
    model = llm.engine.executor.model
    with torch.no_grad():
        model.embedding.weight[7] = float("nan")
    outputs = llm.generate([[7, 8], [8, 9]], GREEDY, use_tqdm=False)
    assert outputs[0].outputs[0].finish_reason == "error"
    assert "not finite" in outputs[0].outputs[0].error
    check_idle(llm.engine.scheduler)
    with pytest.raises(RuntimeError, match="not finite"):
        list(llm.stream([7, 8], GREEDY))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "block_size=0"),
        ({"num_blocks": 0}, "num_blocks=0"),
        ({"max_num_seqs": 0}, "max_num_seqs=0"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens=0"),
        ({"max_model_len": 1}, "max_model_len=1"),
        ({"max_model_len": 513}, "max_model_len=513.*to 512"),
        ({"kv_cache_memory": 10}, "kv_cache_memory=10 bytes holds no block"),
        ({"kv_cache_memory": 2**20, "num_blocks": 4}, "num_blocks or kv_cache_memory, not both"),
        ({"dtype": "int3"}, "dtype='int3' is unknown"),
        ({"device": "cuda"}, "torch sees no GPU"),
        ({"device": "tpu"}, "device='tpu' is not supported: choose auto, cpu or cuda"),
        ({"device": "mps"}, "device='mps' is not supported"),
        ({"num_blocks": 2.5}, "num_blocks=2.5: expected a whole number"),
        ({"kv_cache_memory": "1GiB"}, "kv_cache_memory='1GiB': expected a whole number"),
        ({"max_model_len": "x"}, "max_model_len='x': expected a whole number"),
        ({"num_blocks": 10**10}, "take .* GiB, but .* GiB are free: lower num_blocks"),
        ({"scheduler": "lottery"}, "scheduler='lottery' is unknown"),
        ({"attention_backend": "flash"}, "attention_backend='flash' is unknown"),
    ],
)
def test_bad_options_are_refused_by_name(tiny_dir, options, message):
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=message):
        LLM(tiny_dir, **options)


def test_what_to_do_about_a_long_prompt_depends_on_whose_limit_it_meets(make_llm):
    def told(**options):
        with pytest.raises(ValueError, match="needs room for 601 tokens") as raised:
            make_llm(**options).generate("a" * 600, GREEDY, use_tqdm=False)
        return str(raised.value).partition(", but ")[2]

    assert told() == "max_model_len is 512, all that the model takes: shorten the prompt"
    shorter = told(max_model_len=100)
    assert shorter == "max_model_len is 100: shorten the prompt or raise max_model_len"
    assert told(num_blocks=9).endswith("or raise num_blocks or kv_cache_memory")


def test_the_pool_is_sized_by_its_memory(make_llm):
    llm = make_llm(kv_cache_memory=200_000, block_size=8)
    per_block = llm.kv_cache.nbytes // llm.kv_cache.num_blocks
    assert per_block == 8 * llm.model_config.kv_bytes_per_token(4)
    assert llm.kv_cache.num_blocks == 200_000 // per_block


def test_the_pool_is_no_larger_than_it_could_ever_be_used(make_llm):
    llm = make_llm(kv_cache_memory=2**30, max_num_seqs=2, max_model_len=100)
    assert llm.kv_cache.num_blocks == 2 * 7
