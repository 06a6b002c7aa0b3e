"""`/tokenize` and `/detokenize`: the very tokens that the model reads."""

from concurrent.futures import ThreadPoolExecutor

CONVERSATION = [{"role": "user", "content": "hi"}]


def test_a_text_becomes_tokens_and_a_text_again(server):
    tokens = server.post("/tokenize", prompt="hello world", return_token_strs=True).json()
    assert tokens["tokens"] == server.llm.tokenizer.encode("hello world")
    assert tokens["count"] == len(tokens["tokens"])
    assert tokens["max_model_len"] == server.service.max_len
    assert "".join(tokens["token_strs"]) == "hello world"
    assert server.post("/detokenize", tokens=tokens["tokens"]).json() == {"prompt": "hello world"}
    assert "token_strs" not in server.post("/tokenize", prompt="a").json()
    assert server.post("/tokenize", prompt="").json()["tokens"] == []


def test_a_conversation_becomes_the_tokens_that_a_chat_is_asked_with(server):
    tokens = server.post("/tokenize", messages=CONVERSATION).json()
    usage = server.chat("hi", max_tokens=1)["usage"]
    assert tokens["tokens"] == server.llm.chat_prompt(CONVERSATION)
    assert usage["prompt_tokens"] == tokens["count"]
    assert server.post("/detokenize", tokens=tokens["tokens"]).json()["prompt"].startswith("<s>")


def test_many_at_once_share_one_tokenizer_while_answers_come(server):
    """It is not made for several threads by itself; texts here are long enough to overlap."""
    texts = [chr(97 + i) * 5000 for i in range(8)]
    with ThreadPoolExecutor(8) as threads:
        answer = threads.submit(server.complete, max_tokens=50, ignore_eos=True)
        replies = list(threads.map(lambda text: server.post("/tokenize", prompt=text), texts * 4))
        assert answer.result()["usage"]["completion_tokens"] == 50
    for text, reply in zip(texts * 4, replies, strict=True):
        assert set(reply.json()["tokens"]) == set(server.llm.tokenizer.encode(text[:1]))
        assert reply.json()["count"] == 5000
