"""The OpenAPI document, and that answers are as it says."""

import jsonschema
import pytest


@pytest.fixture(scope="module")
def document(server):
    return server.client.get("/openapi.json").json()


def check(document, name, value):
    """Holds a value against a schema of the document."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(value)


def test_every_reference_leads_somewhere_and_every_route_is_there(document):
    def references(node):
        if isinstance(node, dict):
            yield from ([node["$ref"]] if "$ref" in node else [])
            node = list(node.values())
        if isinstance(node, list):
            for item in node:
                yield from references(item)

    known = document["components"]["schemas"]
    assert {ref.rsplit("/", 1)[1] for ref in references(document)} <= known.keys()
    assert set(document["paths"]) == {
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/models",
        "/v1/models/{name}",
        "/tokenize",
        "/detokenize",
        "/health",
        "/ready",
        "/version",
        "/metrics",
    }


def test_answers_are_as_the_document_says(server, document):
    body = {"max_tokens": 4, "logprobs": 2, "echo": True, "prompt_logprobs": 1}
    check(document, "Completion", server.complete(**body))
    check(document, "ChatCompletion", server.chat(max_tokens=4, logprobs=True, top_logprobs=1))
    for chunk in server.complete_in_pieces(max_tokens=4, logprobs=1):
        check(document, "Completion", chunk)
    check(document, "ModelList", server.client.get("/v1/models").json())
    check(document, "ModelCard", server.client.get("/v1/models/tiny").json())
    check(document, "ErrorReply", server.client.get("/v1/models/none").json())
    tokens = server.post("/tokenize", prompt="hello", return_token_strs=True).json()
    check(document, "TokenizeReply", tokens)
    assert "".join(tokens["token_strs"]) == "hello"
    text = server.post("/detokenize", tokens=tokens["tokens"]).json()
    check(document, "DetokenizeReply", text)
    assert text == {"prompt": "hello"}


@pytest.mark.parametrize(
    ("name", "body", "is_right"),
    [
        ("CompletionRequest", {"prompt": "a"}, True),
        ("CompletionRequest", {"prompt": [[1], [2]], "stop": ["a"], "logit_bias": {"5": 1}}, True),
        ("CompletionRequest", {"prompt": {"a": 1}}, False),
        ("CompletionRequest", {"prompt": "a", "best_of": 2}, False),
        ("CompletionRequest", {"prompt": "a", "stream": None, "stop": None, "seed": None}, True),
        ("CompletionRequest", {"prompt": None}, False),
        ("CompletionRequest", {"prompt": "a", "temperature": -1}, False),
        ("CompletionRequest", {"prompt": "a", "structured_outputs": {"json": {}}}, True),
        ("CompletionRequest", {"prompt": "a", "model": "gpt-4"}, False),
        ("ChatRequest", {"messages": [{"role": "user", "content": "a"}]}, True),
        ("ChatRequest", {"messages": [{"role": "robot", "content": "a"}]}, False),
        ("ChatRequest", {"messages": []}, False),
        ("TokenizeRequest", {"prompt": "a"}, True),
        ("DetokenizeRequest", {"tokens": ["a"]}, False),
    ],
)
def test_bodies_are_described_as_they_are_read(document, name, body, is_right):
    if is_right:
        check(document, name, body)
        return
    with pytest.raises(jsonschema.ValidationError):
        check(document, name, body)
