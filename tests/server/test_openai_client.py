"""OpenAI's own client, unmodified."""

import re

import openai
import pytest

from tests.house.tree import ROOT
from tests.server.test_faults import fail_at


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_a_completion_and_its_stream(client):
    options = {"model": "tiny", "prompt": ["hello", "world"], "max_tokens": 20, "seed": 1}
    options |= {"n": 2, "stop": ["a", "b"], "logprobs": 2}
    whole = client.completions.create(**options)
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    texts, tokens = [""] * 4, [[] for _ in range(4)]
    usage = None
    for chunk in client.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            tokens[choice.index] += choice.logprobs.tokens
    assert texts == [choice.text for choice in whole.choices]
    assert tokens == [choice.logprobs.tokens for choice in whole.choices]
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0


def test_a_chat_and_its_stream(client):
    options = {"model": "tiny", "messages": MESSAGES, "max_completion_tokens": 20, "seed": 1}
    options |= {"n": 2, "stop": ["a", "b"], "logprobs": True, "top_logprobs": 2}
    options |= {"extra_body": {"top_k": 40, "min_p": 0.001}}
    whole = client.chat.completions.create(**options)
    texts, tokens, roles = [""] * 2, [[], []], []
    for chunk in client.chat.completions.create(**options, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            roles += [choice.delta.role] if choice.delta.role else []
            tokens[choice.index] += [entry.token for entry in choice.logprobs.content]
    assert texts == [choice.message.content for choice in whole.choices]
    assert tokens == [[e.token for e in choice.logprobs.content] for choice in whole.choices]
    assert roles == ["assistant"] * 2
    assert {choice.finish_reason for choice in whole.choices} <= {"stop", "length"}
    # The assistant's message goes back as the client holds it, with all its nulls.
    turn = whole.choices[0].message.model_dump()
    more = [*MESSAGES, turn, {"role": "user", "content": "and?"}]
    again = client.chat.completions.create(model="tiny", messages=more, max_tokens=2)
    assert again.usage.prompt_tokens > whole.usage.prompt_tokens


def test_the_clients_own_stream_helper_puts_an_answer_together(client):
    options = {"model": "tiny", "messages": MESSAGES, "max_tokens": 8, "temperature": 0}
    with client.chat.completions.stream(**options) as stream:
        told = [event.content for event in stream if event.type == "content.done"]
    whole = client.chat.completions.create(**options)
    assert told == [whole.choices[0].message.content]


def test_errors_become_the_clients_exceptions(client):
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model="tiny", prompt="a", max_tokens=0)
    assert raised.value.param == "max_tokens"
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="gpt-4", prompt="a")
    assert missing.value.code == "model_not_found"


def test_a_key_is_taken_from_the_client_and_another_refused(start):
    with start({"api_key": "sesame"}) as running:
        base = f"{running.url}/v1"
        with openai.OpenAI(base_url=base, api_key="sesame", max_retries=0) as client:
            assert client.models.retrieve("tiny").id == "tiny"
        with (
            openai.OpenAI(base_url=base, api_key="open", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError),
        ):
            client.models.list()


def test_an_error_in_the_middle_of_a_stream_is_raised(start, make_llm):
    with (
        start(llm=fail_at(make_llm(), 5, RuntimeError("boom"))) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
    ):
        stream = client.completions.create(
            model="tiny", prompt="a", max_tokens=30, stream=True, extra_body={"ignore_eos": True}
        )
        with pytest.raises(openai.APIError, match="computation failed"):
            for _ in stream:
                pass


def test_the_readmes_client_works_as_it_is_printed(start, capsys):
    """But for the port."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    (code,) = [block for block in blocks if "import OpenAI" in block]
    with start({"served_model_name": "smollm2-135m"}) as running:
        exec(code.replace("http://localhost:8000", running.url), {})
        figures = running.figures()
    assert capsys.readouterr().out
    assert figures['minillm:request_params_max_tokens_sum{model_name="smollm2-135m"}'] == 32
