"""One answer as it grows: ids, text and log probabilities, cut at the same token."""

from minillm_serve.core import FinishReason, SamplingParams, SequenceUpdate, TokenLogprobs
from minillm_serve.outputs import CompletionDelta, CompletionOutput
from minillm_serve.text.output import OutputText
from minillm_serve.text.vocabulary import Vocabulary


class Answer:
    """Takes in the updates of one sequence.

    A stop string is found here, since only text shows it; the engine must then be told that the
    sequence has ended.

    Args:
        index: which of its request's answers.
        params: of the request.
        vocabulary: turns ids into text.
    """

    def __init__(self, index: int, params: SamplingParams, vocabulary: Vocabulary) -> None:
        self.index = index
        self.params = params
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.error: str | None = None
        self._pieces: list[str] = []
        # How much of everything has been popped: pieces, ids, and whether the end has.
        self._num_popped = self._num_ids_popped = 0
        self._end_popped = False
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

    def take(self, update: SequenceUpdate) -> bool:
        """Takes in an update; tells whether the answer has ended with it. (It ends only once.)"""
        if self.finished:
            return False
        by_token = update.finish_reason is FinishReason.STOP
        told = self._text.take(update.new_token_ids, ends_with_stop_token=by_token)
        kept = told.num_tokens_kept
        self.token_ids.extend(update.new_token_ids[:kept])
        self.logprobs.extend(update.logprobs[:kept])
        self._pieces.append(told.text)
        if update.finish_reason is None and told.stopped is None:
            return False
        self._finish(update, told.stopped)
        return True

    def fail(self, error: str) -> None:
        """Ends it, because the engine cannot go on with it."""
        if not self.finished:
            self.finish_reason, self.error = FinishReason.ERROR, error

    def abort(self) -> None:
        """Ends it, because it is wanted no more."""
        if not self.finished:
            self.finish_reason = FinishReason.ABORT

    def pop_text(self) -> str:
        """The text that has come since the last call."""
        piece = "".join(self._pieces[self._num_popped :])
        self._num_popped = len(self._pieces)
        return piece

    def pop(self) -> CompletionDelta | None:
        """What has come since the last call, the end included; None if nothing has."""
        begin, ends = self._num_ids_popped, self.finished and not self._end_popped
        text, token_ids = self.pop_text(), self.token_ids[begin:]
        if not (text or token_ids or ends):
            return None
        self._num_ids_popped, self._end_popped = len(self.token_ids), ends
        end = len(self.token_ids)
        return CompletionDelta(
            index=self.index,
            text=text,
            token_ids=token_ids,
            logprobs=self.logprobs[begin:end] if self.params.logprobs is not None else None,
            text_offsets=self._text.offsets[begin:end],
            text_end=self._text.end,
            finish_reason=self.finish_reason.value if self.finish_reason else None,
            stop_reason=self.stop_reason,
            error=self.error,
        )

    def output(self) -> CompletionOutput:
        """Everything so far."""
        return CompletionOutput(
            index=self.index,
            text="".join(self._pieces),
            token_ids=self.token_ids,
            finish_reason=self.finish_reason.value if self.finish_reason else None,
            stop_reason=self.stop_reason,
            logprobs=self.logprobs if self.params.logprobs is not None else None,
            text_offsets=self._text.offsets[: len(self.token_ids)],
            error=self.error,
        )

    def _finish(self, update: SequenceUpdate, stopped: str | None) -> None:
        if stopped is None:
            # The end may make a stop string certain that was not before.
            rest = self._text.finish()
            self._pieces.append(rest.text)
            stopped = rest.stopped
        self.finish_reason = update.finish_reason
        if stopped is not None:
            self.finish_reason, self.stop_reason = FinishReason.STOP, stopped
        elif update.finish_reason is FinishReason.STOP:
            # As in vLLM: a stop token of the request's own is named, the model's EOS is not.
            last = self.token_ids[-1]
            self.stop_reason = last if last in self.params.stop_token_ids else None
        self.error = update.sequence.error
