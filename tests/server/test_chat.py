"""`/v1/chat/completions`: the assistant's turn, whole and in pieces."""

import pytest

from minillm_serve import SamplingParams
from tests.server.running import adding_bos

GREEDY = {"temperature": 0, "max_tokens": 12}


def content_of(chunks, index=0):
    """What a stream said as one choice."""
    choices = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def logprobs_of(chunks, index=0):
    """The entries of a stream."""
    choices = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
    return [entry for choice in choices for entry in choice["logprobs"]["content"]]


def test_it_says_what_the_engine_says(server, make_llm):
    params = SamplingParams(max_tokens=12, temperature=1.2, seed=5)
    conversation = [{"role": "user", "content": "hi"}]
    (output,) = make_llm().chat(conversation, params, use_tqdm=False)
    body = {"max_tokens": 12, "temperature": 1.2, "seed": 5}
    reply = server.chat("hi", model="tiny", **body)
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "content": output.outputs[0].text}
    assert (reply["object"], choice["finish_reason"]) == ("chat.completion", "length")
    chunks = server.chat_in_pieces("hi", **body)
    assert content_of(chunks) == choice["message"]["content"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_the_template_brings_the_only_bos_b115(start, make_llm):
    """Each turn of the tiny template begins with `<s>`, and so does a text that is encoded."""
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    body = {"messages": messages}
    with start(llm=adding_bos(make_llm())) as running:
        ids = running.post("/tokenize", **body).json()["tokens"]
        bos = running.llm.tokenizer.bos_token_id
        assert ids.count(bos) == 3  # two turns and the assistant's
        assert ids[:2].count(bos) == 1
        replies = [running.post("/v1/chat/completions", **body, **GREEDY).json() for _ in range(2)]
        assert [reply["usage"]["prompt_tokens"] for reply in replies] == [len(ids)] * 2
        cached = replies[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached == (len(ids) - 1) // 4 * 4
        # A text, on the other hand, gets its BOS, unless somebody wants none.
        assert running.post("/tokenize", prompt="hi").json()["tokens"][0] == bos
        bare = running.post("/tokenize", prompt="hi", add_special_tokens=False).json()["tokens"]
        assert bos not in bare
        reply = running.complete("hi", echo=True, logprobs=0, **GREEDY)
        assert reply["usage"]["prompt_tokens"] == 3
        assert reply["choices"][0]["text"].startswith("hi")
        assert reply["choices"][0]["logprobs"]["tokens"][:3] == ["", "h", "i"]
        assert running.complete("", **GREEDY)["usage"]["prompt_tokens"] == 1  # b104: from BOS


def test_each_choice_begins_with_the_role_and_has_one_end_b103(server):
    body = {"seed": 2, "temperature": 2.0, "max_tokens": 30, "stop": ["a", "e", "3"], "n": 3}
    whole = server.chat(**body)["choices"]
    texts = [choice["message"]["content"] for choice in whole]
    assert len(set(texts)) == 3
    chunks = server.chat_in_pieces(**body)
    assert [content_of(chunks, index) for index in range(3)] == texts
    for index in range(3):
        choices = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        roles = [choice["delta"].get("role") for choice in choices]
        assert roles == ["assistant"] + [None] * (len(roles) - 1)
        ends = [choice["finish_reason"] for choice in choices]
        assert ends == [None] * (len(ends) - 1) + [whole[index]["finish_reason"]]


def test_the_usage_comes_on_request_in_a_last_chunk_without_choices_b102(server):
    assert all("usage" not in chunk for chunk in server.chat_in_pieces(**GREEDY))
    *chunks, last = server.chat_in_pieces(**GREEDY, stream_options={"include_usage": True})
    assert all(chunk["usage"] is None for chunk in chunks)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 12)
    both = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = server.chat_in_pieces(**GREEDY, stream_options=both)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks][-1] == 12
    assert chunks[-1]["usage"] == last["usage"]


@pytest.mark.parametrize("seed", range(4))
def test_the_tokens_and_their_bytes_join_to_the_answer_b94_b97(server, seed):
    body = {"seed": seed, "temperature": 1.5, "max_tokens": 30, "stop": ["a", "Q", "3", "#"]}
    reply = server.chat(logprobs=True, top_logprobs=3, **body)
    (choice,) = reply["choices"]
    entries = choice["logprobs"]["content"]
    assert len(entries) == reply["usage"]["completion_tokens"]
    content = choice["message"]["content"]
    assert "".join(entry["token"] for entry in entries) == content
    assert bytes(b for entry in entries for b in entry["bytes"]).decode() == content
    for entry in entries:
        top = entry["top_logprobs"]
        assert len(top) == 3
        values = [told["logprob"] for told in top]
        assert values == sorted(values, reverse=True)
        assert all(told["bytes"] for told in top)
    chunks = server.chat_in_pieces(logprobs=True, top_logprobs=3, **body)
    assert logprobs_of(chunks) == entries


def test_logprobs_without_top_logprobs_tell_of_the_chosen_token_alone_b96(server):
    (choice,) = server.chat(logprobs=True, **GREEDY)["choices"]
    assert all(entry["top_logprobs"] == [] for entry in choice["logprobs"]["content"])
    assert server.chat(**GREEDY)["choices"][0]["logprobs"] is None


def test_without_a_limit_an_answer_ends_at_the_context_b110(start):
    with start(max_model_len=48) as running:
        reply = running.chat(temperature=0, logit_bias={"2": -100})
        assert reply["choices"][0]["finish_reason"] == "length"
        assert reply["usage"]["total_tokens"] == 48
        newer = running.chat(temperature=0, ignore_eos=True, max_completion_tokens=3)
        assert newer["usage"]["completion_tokens"] == 3


def test_parts_of_a_message_are_one_text_and_a_clients_own_nulls_are_nothing(server):
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    turn = {"role": "assistant", "content": "yes", "refusal": None, "tool_calls": None}
    ends = {"role": "user", "content": "and"}
    bodies = [
        {"messages": [{"role": "user", "content": content}, turn, ends]}
        for content in (parts, "one\ntwo")
    ]
    ids = [server.post("/tokenize", messages=[b["messages"][0]]).json()["tokens"] for b in bodies]
    assert ids[0] == ids[1]
    replies = [server.post("/v1/chat/completions", **b, **GREEDY).json() for b in bodies]
    assert replies[0]["choices"] == replies[1]["choices"]


def test_prompt_logprobs_stand_beside_the_choices(server):
    reply = server.chat(prompt_logprobs=1, **GREEDY)
    assert len(reply["prompt_logprobs"]) == reply["usage"]["prompt_tokens"]
    assert reply["prompt_logprobs"][0] is None


def test_a_template_that_refuses_a_conversation_is_the_requests_fault(start, make_llm):
    llm = make_llm()
    llm.tokenizer.chat_template = "{{ raise_exception('Roles must alternate') }}"
    with start(llm=llm) as running:
        reply = running.post("/v1/chat/completions", messages=[{"role": "user", "content": "hi"}])
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages")
        assert "Roles must alternate" in reply.json()["error"]["message"]
        llm.tokenizer.chat_template = None
        reply = running.post("/v1/chat/completions", messages=[{"role": "user", "content": "hi"}])
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages")
