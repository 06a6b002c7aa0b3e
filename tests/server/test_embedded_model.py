"""The embedded model behind the server: a conversation, as the engine's other faces have it."""

import pytest

from minillm_serve import LLM, SamplingParams
from tests.server.running import Running

pytestmark = pytest.mark.model


def test_a_conversation_is_answered_as_by_the_plain_face():
    """In float32 on one machine, one request at a time: the very same tokens."""
    llm = LLM(num_blocks=64)
    messages = [{"role": "user", "content": "Name three colours."}]
    params = SamplingParams(temperature=0, max_tokens=24)
    plain = llm.chat(messages, params, use_tqdm=False)[0]
    llm.reset_prefix_cache()
    with Running(llm, served_model_name="smollm2-135m") as running:
        body = {"model": "smollm2-135m", "messages": messages, "temperature": 0, "max_tokens": 24}
        reply = running.post("/v1/chat/completions", **body).json()
        assert reply["choices"][0]["message"]["content"] == plain.outputs[0].text
        assert reply["usage"]["prompt_tokens"] == len(plain.prompt_token_ids)
        again = running.post("/v1/chat/completions", **body).json()
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        chunks = running.chat_in_pieces("Name three colours.", temperature=0, max_tokens=24)
        pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
        assert "".join(pieces) == again["choices"][0]["message"]["content"]
