"""`/tokenize`, `/detokenize` and `/v1/models`."""

from typing import Annotated

from pydantic import Field

from minillm_serve.server.errors import invalid
from minillm_serve.server.schema.base import Body, Reply
from minillm_serve.server.schema.chat import ChatMessage
from minillm_serve.server.schema.sampling import TokenId


class TokenizeRequest(Body):
    """A text or a conversation to be cut into tokens.

    Attributes:
        prompt: the text; or
        messages: the conversation, in the model's chat template.
        add_special_tokens: put those that the tokenizer adds to a text, such as BOS.
        return_token_strs: also tell each token's text.
    """

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)] | None = None
    add_special_tokens: bool = True
    return_token_strs: bool = False

    def check(self) -> None:
        """Raises `ApiError` unless there is a text or a conversation, not both."""
        if (self.prompt is None) == (self.messages is None):
            raise invalid("give either prompt or messages", "prompt")


class TokenizeReply(Reply):
    """The tokens, and how many of them the model takes."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(Body):
    """Tokens to be read as text, special ones included."""

    model: str | None = None
    tokens: Annotated[list[TokenId], Field(fail_fast=True)]


class DetokenizeReply(Reply):
    """The text."""

    prompt: str


class ModelCard(Reply):
    """A name under which the model is served.

    Attributes:
        root: the model itself.
        max_model_len: most tokens of prompt and answer together.
    """

    id: str
    object: str = "model"
    created: int
    owned_by: str = "minillm-serve"
    root: str
    max_model_len: int


class ModelList(Reply):
    """All names."""

    object: str = "list"
    data: list[ModelCard]
