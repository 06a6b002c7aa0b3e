"""`/v1/completions`: the engine's answers in OpenAI's format, whole and in pieces."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from minillm_serve import SamplingParams
from minillm_serve.server import completions
from tests.server.running import eventually, slow_down

GREEDY = {"temperature": 0, "max_tokens": 12}


def text_of(chunks, index=0):
    """What a stream said as one choice."""
    choices = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
    return "".join(choice["text"] for choice in choices)


def joined(chunks, index=0):
    """The four lists of a stream's log probabilities."""
    lists = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                for name, values in lists.items():
                    values.extend(choice["logprobs"][name])
    return lists


def test_it_gives_the_tokens_that_the_engine_gives(server, make_llm):
    params = SamplingParams(max_tokens=12, temperature=1.2, seed=5, top_k=40)
    (output,) = make_llm().generate("hello", params, use_tqdm=False)
    body = {"max_tokens": 12, "temperature": 1.2, "seed": 5, "top_k": 40}
    reply = server.complete("hello", model="tiny", **body)
    (choice,) = reply["choices"]
    assert choice["text"] == output.outputs[0].text
    assert choice["finish_reason"] == "length"
    assert (reply["object"], reply["model"]) == ("text_completion", "tiny")
    assert reply["id"].startswith("cmpl-")
    usage = reply["usage"]
    counts = (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"])
    assert counts == (5, 12, 17)
    assert text_of(server.complete_in_pieces("hello", **body)) == choice["text"]


def test_a_prompt_may_be_ids(server):
    ids = server.llm.tokenizer.encode("hello")
    by_text, by_ids = server.complete("hello", **GREEDY), server.complete(ids, **GREEDY)
    assert by_text["choices"] == by_ids["choices"]


def test_id_0_seed_0_and_temperature_0_are_values_b105(server):
    for prompt in ([0], [0, 0], [[0]]):
        assert server.complete(prompt, **GREEDY)["usage"]["prompt_tokens"] in (1, 2)
    seeded = [server.complete(seed=0, max_tokens=12)["choices"] for _ in range(2)]
    assert seeded[0] == seeded[1]
    biased = server.complete(temperature=0, max_tokens=3, logit_bias={"0": 100}, stop_token_ids=[0])
    (choice,) = biased["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", 0)
    assert biased["usage"]["completion_tokens"] == 1


def test_without_a_limit_16_tokens_come(server):
    assert server.complete(ignore_eos=True)["usage"]["completion_tokens"] == 16
    assert server.complete(ignore_eos=True, min_tokens=20)["usage"]["completion_tokens"] == 20


@pytest.mark.parametrize("name", ["tiny", None])
def test_nulls_are_as_if_absent_b102(server, name):
    nothing = dict.fromkeys(["max_tokens", "stop", "seed", "logit_bias", "suffix", "user"])
    reply = server.complete(model=name, n=None, stream_options=None, temperature=0, **nothing)
    assert reply["choices"] == server.complete(temperature=0)["choices"]


def test_the_usage_comes_on_request_in_a_last_chunk_without_choices_b102(server):
    plain = server.complete_in_pieces(**GREEDY)
    assert all("usage" not in chunk and chunk["choices"] for chunk in plain)
    *chunks, last = server.complete_in_pieces(**GREEDY, stream_options={"include_usage": True})
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 12
    without = server.complete_in_pieces(**GREEDY, stream_options={"include_usage": False})
    assert len(without) == len(plain)


def test_the_usage_so_far_comes_with_every_chunk_on_request(server):
    """vLLM's continuous_usage_stats, which load generators ask for."""
    body = {**GREEDY, "n": 2, "ignore_eos": True}
    both = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = server.complete_in_pieces(["hello", "you"], **body, stream_options=both)
    so_far = [chunk["usage"] for chunk in chunks]
    counts = [usage["completion_tokens"] for usage in so_far]
    assert counts == sorted(counts)
    assert len(set(counts)) > 12
    assert so_far[0]["prompt_tokens"] in (5, 3)
    assert so_far[-1] == last["usage"]
    assert last["usage"]["completion_tokens"] == 4 * 12
    alone = {"continuous_usage_stats": True}
    without = server.complete_in_pieces(**GREEDY, stream_options=alone)
    assert all("usage" not in chunk for chunk in without)


def test_choices_are_numbered_prompt_by_prompt_each_with_one_end_b103(server):
    body = {"seed": 7, "temperature": 2.0, "max_tokens": 30, "stop": ["a", "e", "3"], "n": 3}
    prompts = ["hello", "world"]
    whole = server.complete(prompts, **body)
    assert [choice["index"] for choice in whole["choices"]] == list(range(6))
    alone = [server.complete(prompt, **body)["choices"] for prompt in prompts]
    texts = [choice["text"] for choice in whole["choices"]]
    assert texts == [choice["text"] for choices in alone for choice in choices]
    assert len(set(map(len, texts))) > 1
    assert len(set(texts)) > 3
    chunks = server.complete_in_pieces(prompts, **body)
    assert [text_of(chunks, index) for index in range(6)] == texts
    for index in range(6):
        choices = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        ends = [c["finish_reason"] for c in choices]
        assert ends[:-1] == [None] * (len(ends) - 1)
        assert ends[-1] == whole["choices"][index]["finish_reason"]
        assert choices[-1]["stop_reason"] == whole["choices"][index]["stop_reason"]


@pytest.mark.parametrize("num_tokens", [1, 6])
def test_an_echo_has_the_prompts_tokens_before_the_answers_b116(server, num_tokens):
    body = {"prompt": "hello!", "echo": True, "logprobs": 1, "temperature": 0}
    body |= {"max_tokens": num_tokens, "ignore_eos": True}
    (choice,) = server.complete(**body)["choices"]
    logprobs = choice["logprobs"]
    assert {len(values) for values in logprobs.values()} == {6 + num_tokens}
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    assert choice["text"].startswith("hello!")
    assert "".join(logprobs["tokens"]) == choice["text"]
    ends = [*logprobs["text_offset"][1:], len(choice["text"])]
    cut = [choice["text"][a:b] for a, b in zip(logprobs["text_offset"], ends, strict=True)]
    assert cut == logprobs["tokens"]
    chunks = server.complete_in_pieces(**body)
    assert joined(chunks) == logprobs
    assert text_of(chunks) == choice["text"]


def test_an_echo_comes_once_for_each_choice_with_and_without_log_probabilities(server):
    texts, ids = ["hello", "w"], [[40, 41, 42], [7]]
    spelled = [server.llm.tokenizer.decode(some) for some in ids]
    for prompts, begin in ((texts, texts), (ids, spelled)):
        for more in ({}, {"logprobs": 0}):
            body = {"echo": True, "n": 2, "seed": 1, "max_tokens": 6, **more}
            choices = server.complete(prompts, **body)["choices"]
            for choice, prompt in zip(choices, [begin[0]] * 2 + [begin[1]] * 2, strict=True):
                assert choice["text"].startswith(prompt)
                assert len(choice["text"]) > len(prompt)
            chunks = server.complete_in_pieces(prompts, **body)
            told = [text_of(chunks, index) for index in range(4)]
            assert told == [choice["text"] for choice in choices]


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_is_cut_into_its_tokens_in_a_thread(server, monkeypatch, stream):
    """A long one takes a while, and nobody else is to wait for it."""
    names, honest = [], completions.tokens_of_prompt

    def noting(*args):
        names.append(threading.current_thread().name)
        return honest(*args)

    monkeypatch.setattr(completions, "tokens_of_prompt", noting)
    reply = server.post("/v1/completions", prompt="hello", echo=True, stream=stream, **GREEDY)
    assert reply.status_code == 200
    (name,) = names
    assert name.startswith("asyncio_")


def test_logprobs_0_tells_of_the_chosen_token_alone_b96(server):
    body = {"temperature": 2.0, "seed": 3, "max_tokens": 20, "ignore_eos": True}
    for count in (0, 1, 5):
        (choice,) = server.complete(logprobs=count, **body)["choices"]
        logprobs = choice["logprobs"]
        rows = zip(
            logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
        )
        sizes = set()
        for token, logprob, top in rows:
            assert top[token or "</s>"] == logprob  # an end that is ignored adds no text
            sizes.add(len(top))
            assert len(top) <= count + 1
        # Some token was not among the likeliest: then there is one entry more.
        assert max(sizes) == count + 1
    assert server.complete(**body)["choices"][0]["logprobs"] is None


STOPS = {
    "stop token": {"stop_token_ids": list(range(30, 60))},
    "end of text": {"logit_bias": {"2": 4.0}},
    "stop string": {"stop": ["a", "b", "7", "Q"]},
    "two tokens": {"stop": ["".join(pair) for pair in ("ab", "yw", "wx", "x4")]},
    "length": {"ignore_eos": True},
}


@pytest.mark.parametrize("kind", STOPS)
@pytest.mark.parametrize("seed", range(2))
def test_lists_are_of_one_length_and_join_to_the_answer_b97(server, kind, seed):
    body = {"seed": seed, "temperature": 1.4, "max_tokens": 40, "logprobs": 2, **STOPS[kind]}
    reply = server.complete(**body)
    (choice,) = reply["choices"]
    logprobs = choice["logprobs"]
    assert {len(values) for values in logprobs.values()} == {reply["usage"]["completion_tokens"]}
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
    chunks = server.complete_in_pieces(**body)
    assert joined(chunks) == logprobs
    assert text_of(chunks) == choice["text"]
    text = tokens = ""
    for chunk in chunks:  # no token is given out before its text
        text += chunk["choices"][0]["text"]
        tokens += "".join(chunk["choices"][0]["logprobs"]["tokens"])
        assert text.startswith(tokens)


def test_a_stop_string_is_never_seen_in_part(server):
    free = server.complete(temperature=0, max_tokens=20, ignore_eos=True)["choices"][0]["text"]
    stop = free[8:11]
    end = free.index(stop)
    chunks = server.complete_in_pieces(temperature=0, max_tokens=20, ignore_eos=True, stop=stop)
    assert text_of(chunks) == free[:end]
    assert chunks[-1]["choices"][0]["stop_reason"] == stop


def test_prompt_logprobs_come_by_token_id(server):
    (choice,) = server.complete("hello", prompt_logprobs=2, **GREEDY)["choices"]
    first, *rest = choice["prompt_logprobs"]
    assert first is None
    ids = server.llm.tokenizer.encode("hello")
    for token_id, entry in zip(ids[1:], rest, strict=True):
        assert 2 <= len(entry) <= 3
        assert entry[str(token_id)]["decoded_token"] == server.llm.tokenizer.decode([token_id])
        assert all(told["rank"] <= 2 for name, told in entry.items() if name != str(token_id))


def test_cached_tokens_are_counted_unless_the_salt_is_another(server):
    prompt = "a prompt of some length, of several blocks"

    def cached(**body):
        usage = server.complete(prompt, **GREEDY, **body)["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached(cache_salt="ada") == 0
    assert cached(cache_salt="ada") > 0
    assert cached(cache_salt="bob") == 0


def test_more_logprobs_than_tokens_in_the_vocabulary_are_clamped_b95(start):
    """The tiny model has 97 tokens; OpenAI's limit is below that, so it is another here."""
    with start({"max_logprobs": 200}) as running:
        (choice,) = running.complete(logprobs=150, max_tokens=2, temperature=0)["choices"]
    assert all(90 < len(top) <= 97 for top in choice["logprobs"]["top_logprobs"])


def test_accepted_drafts_are_part_of_the_usage_b52(start):
    prompt = [5, 6, 7, 8] * 8
    with start(speculative_config="ngram") as running:
        reply = running.complete(prompt, temperature=0, max_tokens=40, ignore_eos=True)
        plain = running.complete(
            prompt, temperature=0, max_tokens=40, stop=[reply["choices"][0]["text"][9:11]]
        )
        for usage in (reply["usage"], plain["usage"]):
            details = usage["completion_tokens_details"]
            assert 0 <= details["accepted_prediction_tokens"] <= usage["completion_tokens"]
            assert details["rejected_prediction_tokens"] >= 0
        told = running.llm.spec_stats
        assert told.num_draft_tokens > 0
        assert running.figure("spec_decode_num_draft_tokens_total") == told.num_draft_tokens
        assert running.figure("spec_decode_num_accepted_tokens_total") == told.num_accepted_tokens


def test_the_lower_priority_goes_first(start, make_llm):
    llm = slow_down(make_llm(policy="priority", max_num_seqs=1), 0.02)
    order = []
    with start(llm=llm) as running, ThreadPoolExecutor() as threads:

        def ask(priority):
            running.complete(max_tokens=6, ignore_eos=True, priority=priority)
            order.append(priority)

        for num_before, priority in enumerate((0, 5, -5)):
            threads.submit(ask, priority)
            eventually(lambda n=num_before: llm.engine.scheduler.num_unfinished == n + 1)
    assert order == [0, -5, 5]
