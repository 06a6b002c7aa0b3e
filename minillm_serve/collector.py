"""Gathers what the engine says about one request until somebody asks for it."""

from minillm_serve.core import (
    FinishReason,
    Request,
    RequestMetrics,
    SequenceUpdate,
    TokenLogprobs,
)
from minillm_serve.outputs import CompletionOutput, RequestOutput
from minillm_serve.text.output import OutputText
from minillm_serve.text.vocabulary import Vocabulary


class Collector:
    """The receiving end of one request: each reader of a stream sees its own tokens, all of them.

    Ids, text and log probabilities are cut at the same token. A stop string is found here, since
    only text shows it; the engine must then be told that the request has ended.

    Args:
        request: whose.
        prompt: its text, if it was given as text.
        vocabulary: turns ids into text.
        metrics: as the engine keeps them.
    """

    def __init__(
        self,
        request: Request,
        prompt: str | None,
        vocabulary: Vocabulary,
        metrics: RequestMetrics,
    ) -> None:
        params = request.params
        self.request = request
        self.metrics = metrics
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.prompt_logprobs: list[TokenLogprobs | None] = []
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.error: str | None = None
        self._prompt = prompt
        self._pieces: list[str] = []
        self._num_popped = 0
        self._text = OutputText(
            vocabulary,
            skip_special_tokens=params.skip_special_tokens,
            stop=params.stop,
            include_stop_str_in_output=params.include_stop_str_in_output,
            min_tokens=params.min_tokens,
        )

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.finish_reason is not None

    def take(self, update: SequenceUpdate) -> None:
        """Takes in an update of this request's sequence; does nothing once it has finished."""
        if self.finished:
            return
        by_token = update.finish_reason is FinishReason.STOP
        told = self._text.take(update.new_token_ids, ends_with_stop_token=by_token)
        kept = told.num_tokens_kept
        self.token_ids.extend(update.new_token_ids[:kept])
        self.logprobs.extend(update.logprobs[:kept])
        self._pieces.append(told.text)
        if update.finish_reason is not None or told.stopped is not None:
            self._finish(update, told.stopped)

    def fail(self, error: str) -> None:
        """Ends the request, because the engine cannot go on with it."""
        if not self.finished:
            self.finish_reason, self.error = FinishReason.ERROR, error

    def pop_text(self) -> str:
        """The text that has come since the last call."""
        piece = "".join(self._pieces[self._num_popped :])
        self._num_popped = len(self._pieces)
        return piece

    def output(self) -> RequestOutput:
        """Everything so far, as `LLM.generate` returns it."""
        params = self.request.params
        wanted = params.logprobs is not None
        answer = CompletionOutput(
            index=0,
            text="".join(self._pieces),
            token_ids=self.token_ids,
            finish_reason=self.finish_reason.value if self.finish_reason else None,
            stop_reason=self.stop_reason,
            logprobs=self.logprobs if wanted else None,
            text_offsets=self._text.offsets[: len(self.token_ids)],
            error=self.error,
        )
        return RequestOutput(
            request_id=self.request.request_id,
            prompt=self._prompt,
            prompt_token_ids=list(self.request.prompt_token_ids),
            prompt_logprobs=self.prompt_logprobs if params.prompt_logprobs is not None else None,
            outputs=[answer],
            metrics=self.metrics,
        )

    def _finish(self, update: SequenceUpdate, stopped: str | None) -> None:
        if stopped is None:
            # The end may make a stop string certain that was not before.
            rest = self._text.finish()
            self._pieces.append(rest.text)
            stopped = rest.stopped
        sequence = update.sequence
        self.finish_reason = update.finish_reason
        if stopped is not None:
            self.finish_reason, self.stop_reason = FinishReason.STOP, stopped
        elif update.finish_reason is FinishReason.STOP:
            # As in vLLM: a stop token of the request's own is named, the model's EOS is not.
            last = self.token_ids[-1]
            self.stop_reason = last if last in self.request.params.stop_token_ids else None
        self.error = sequence.error
        self.prompt_logprobs = sequence.prompt_logprobs
        self.metrics.num_output_tokens = len(self.token_ids)
