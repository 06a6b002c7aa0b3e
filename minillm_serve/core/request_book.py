"""Who is in the engine, and what is noted down about them."""

from collections.abc import Callable
from typing import Any

from minillm_serve.core.batch import Batch, SequenceUpdate
from minillm_serve.core.load import asked_tokens
from minillm_serve.core.metrics import RequestMetrics
from minillm_serve.core.request import Request, Sequence


class RequestBook:
    """The requests that have not ended: their sequences and their metrics.

    Args:
        max_len: length at which a sequence ends, in tokens.
        on_leave: told the id of each request that has ended.

    Attributes:
        metrics: by the request's id.
        waiting_tokens: what the requests that have not begun may come to, prompts and answers.
    """

    def __init__(self, max_len: int, on_leave: Callable[[str], None]) -> None:
        self.metrics: dict[str, RequestMetrics] = {}
        self.waiting_tokens = 0
        self._max_len, self._on_leave = max_len, on_leave
        self._unfinished: dict[str, list[Sequence]] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._unfinished

    def open(self, request: Request, **options: Any) -> list[Sequence]:
        """A request comes in; gives it as many sequences as it wants answers.

        Args:
            request: whose id is not in use.
            options: of each `Sequence`.
        """
        first = Sequence(request, **options)
        others = [
            Sequence(request, parent=first, index=index, **options)
            for index in range(1, request.params.n)
        ]
        self._unfinished[request.request_id] = [first, *others]
        self.metrics[request.request_id] = RequestMetrics(first.arrival_time)
        self.waiting_tokens += asked_tokens(request, self._max_len)
        return [first, *others]

    def unfinished(self, request_id: str, index: int | None = None) -> list[Sequence]:
        """Sequences of a request that have not ended; `index` picks one of its answers."""
        sequences = self._unfinished.get(request_id, [])
        return [s for s in sequences if index is None or s.index == index]

    def note_start(self, batch: Batch, now: float) -> None:
        """A step begins: for some requests it is the first."""
        for item in batch.scheduled:
            metrics = self.metrics[item.sequence.request.request_id]
            if metrics.first_scheduled_time is None:
                metrics.first_scheduled_time = now
                self.waiting_tokens -= asked_tokens(item.sequence.request, self._max_len)
                metrics.num_cached_tokens = item.sequence.num_cached_tokens

    def note(self, update: SequenceUpdate, now: float) -> None:
        """A sequence got tokens, or ended."""
        metrics = self.metrics[update.request_id]
        if update.new_token_ids:
            if metrics.first_token_time is None:
                metrics.first_token_time = now
            metrics.last_token_time = now
            metrics.num_output_tokens += len(update.new_token_ids)
            metrics.num_draft_tokens += len(update.draft_token_ids)
            metrics.num_accepted_tokens += update.num_accepted
        if update.finish_reason:
            self.close(update.sequence, now)

    def close(self, sequence: Sequence, now: float) -> None:
        """A sequence has ended; with the last one of a request, nothing of it stays here."""
        name = sequence.request.request_id
        metrics, unfinished = self.metrics[name], self._unfinished[name]
        metrics.num_preemptions += sequence.num_preemptions
        metrics.finished_time = now
        unfinished.remove(sequence)
        if not unfinished:
            del self._unfinished[name], self.metrics[name]
            if metrics.first_scheduled_time is None:
                self.waiting_tokens -= asked_tokens(sequence.request, self._max_len)
            self._on_leave(name)
