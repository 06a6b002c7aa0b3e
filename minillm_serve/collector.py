"""Gathers what the engine says about one request until somebody asks for it."""

from typing import Any

from minillm_serve.core import FinishReason, Request, RequestMetrics, SequenceUpdate
from minillm_serve.outputs import CompletionOutput, RequestOutput
from minillm_serve.text.detokenizer import IncrementalDetokenizer


class Collector:
    """The receiving end of one request: each reader of a stream sees its own tokens, all of them.

    Args:
        request: whose.
        prompt: its text, if it was given as text.
        tokenizer: turns ids into text.
        metrics: as the engine keeps them.
    """

    def __init__(
        self, request: Request, prompt: str | None, tokenizer: Any, metrics: RequestMetrics
    ) -> None:
        self.request = request
        self.metrics = metrics
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None
        self._prompt = prompt
        self._pieces: list[str] = []
        self._num_popped = 0
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, skip_special_tokens=request.params.skip_special_tokens
        )

    @property
    def finished(self) -> bool:
        """Whether the last update has come."""
        return self.finish_reason is not None

    def take(self, update: SequenceUpdate) -> None:
        """Takes in an update of this request's sequence."""
        self.token_ids.extend(update.new_token_ids)
        self._pieces.append(self._detokenizer.feed(list(update.new_token_ids)))
        if update.finish_reason is not None:
            self._pieces.append(self._detokenizer.flush())
            self.finish_reason = update.finish_reason
            self.error = update.sequence.error

    def pop_text(self) -> str:
        """The text that has come since the last call."""
        piece = "".join(self._pieces[self._num_popped :])
        self._num_popped = len(self._pieces)
        return piece

    def output(self) -> RequestOutput:
        """Everything so far, as `LLM.generate` returns it."""
        answer = CompletionOutput(
            index=0,
            text="".join(self._pieces),
            token_ids=self.token_ids,
            finish_reason=self.finish_reason.value if self.finish_reason else None,
            error=self.error,
        )
        ids = list(self.request.prompt_token_ids)
        return RequestOutput(self.request.request_id, self._prompt, ids, [answer], self.metrics)
