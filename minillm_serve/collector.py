"""Gathers what the engine says about one request until somebody asks for it."""

from minillm_serve.answer import Answer
from minillm_serve.core import Request, RequestMetrics, SequenceUpdate, TokenLogprobs
from minillm_serve.outputs import CompletionDelta, RequestOutput
from minillm_serve.text.vocabulary import Vocabulary


class Collector:
    """The receiving end of one request: each reader of a stream sees its own tokens, all of them.

    Args:
        request: whose.
        prompt: its text, if it was given as text.
        vocabulary: turns ids into text.
        metrics: as the engine keeps them.

    Attributes:
        answers: as many as the request wants.
    """

    def __init__(
        self,
        request: Request,
        prompt: str | None,
        vocabulary: Vocabulary,
        metrics: RequestMetrics,
    ) -> None:
        self.request = request
        self.metrics = metrics
        self.answers = [Answer(i, request.params, vocabulary) for i in range(request.params.n)]
        self.prompt_logprobs: list[TokenLogprobs | None] = []
        self._prompt = prompt

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return all(answer.finished for answer in self.answers)

    @property
    def error(self) -> str | None:
        """What went wrong with an answer, if anything did."""
        return next((answer.error for answer in self.answers if answer.error is not None), None)

    def take(self, update: SequenceUpdate) -> bool:
        """Takes in an update of one of this request's sequences, unless that answer has ended.

        Returns:
            Whether it has ended though the engine does not know of it: by a stop string.
        """
        answer, metrics = self.answers[update.index], self.metrics
        before = len(answer.token_ids)
        ended = answer.take(update)
        # A stop string may have cut tokens off, drafts that were right among them.
        kept = len(answer.token_ids) - before
        metrics.num_accepted_tokens -= max(0, update.num_accepted - kept)
        if update.index == 0:  # the one that computes the prompt's: all, before its first token
            self.prompt_logprobs = update.sequence.prompt_logprobs
        if not ended:
            return False
        metrics.num_output_tokens = sum(len(answer.token_ids) for answer in self.answers)
        return update.finish_reason is None

    def fail(self, error: str) -> None:
        """Ends the request, because the engine cannot go on with it."""
        for answer in self.answers:
            answer.fail(error)

    def abort(self) -> None:
        """Ends the request, because it is wanted no more."""
        for answer in self.answers:
            answer.abort()

    def pop_text(self) -> str:
        """The text of a request's only answer that has come since the last call."""
        (answer,) = self.answers
        return answer.pop_text()

    def pop(self) -> list[CompletionDelta]:
        """What has come for each answer since the last call."""
        deltas = (answer.pop() for answer in self.answers)
        return [delta for delta in deltas if delta is not None]

    def output(self) -> RequestOutput:
        """Everything so far, as `LLM.generate` returns it."""
        wants_prompt = self.request.params.prompt_logprobs is not None
        return RequestOutput(
            request_id=self.request.request_id,
            prompt=self._prompt,
            prompt_token_ids=list(self.request.prompt_token_ids),
            prompt_logprobs=self.prompt_logprobs if wants_prompt else None,
            outputs=[answer.output() for answer in self.answers],
            metrics=self.metrics,
        )
