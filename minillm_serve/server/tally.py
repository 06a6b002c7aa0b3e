"""Counts and times that the engine's own books do not keep, noted as they happen."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Histogram

from minillm_serve.answer import Answer
from minillm_serve.collector import Collector
from minillm_serve.core import FinishReason, StepRecord

#: Bounds in seconds, vLLM's: from a token on a fast GPU to a long answer on a laptop.
_MILLISECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75)
TO_FIRST_TOKEN = (*_MILLISECONDS, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
_SHORT_GAPS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75)
BETWEEN_TOKENS = (*_SHORT_GAPS, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_SECONDS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0)
OF_REQUESTS = (*_SECONDS, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)


class Tally:
    """An observer of the engine; it is called in the engine's thread.

    Rules, by which the figures agree with each other and with what clients are told:

    - a prompt's tokens count once, when the first token of an answer to it is there;
    - a generated token counts if it is part of an answer: as in the usage;
    - each answer that was let in ends with one reason, and is counted once under it; a client that
      hangs up makes it "abort";
    - times are those of requests; a request that is aborted has no end-to-end latency.

    Args:
        registry: where the metrics are.
        model: the model's name, a label of all.
    """

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            names = ("model_name", *labels)
            return Counter(f"minillm:{name}", text, names, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float]) -> Histogram:
            metric = Histogram(
                f"minillm:{name}", text, ("model_name",), buckets=buckets, registry=registry
            )
            return metric.labels(model)

        self._prompt_tokens = counter("prompt_tokens", "Tokens of prompts.").labels(model)
        self._tokens = counter("generation_tokens", "Tokens of answers.").labels(model)
        self._busy = counter(
            "engine_busy_seconds", "Seconds in which a step ran: its rate is the busy fraction."
        ).labels(model)
        ends = counter("request_success", "Answers by how they ended.", ["finished_reason"])
        # All are there from the start: the number of series does not grow.
        self._ends = {reason: ends.labels(model, reason.value) for reason in FinishReason}
        self._ttft = histogram(
            "time_to_first_token_seconds", "From arrival to the first token.", TO_FIRST_TOKEN
        )
        self._queued = histogram(
            "request_queue_time_seconds", "From arrival to the first step.", OF_REQUESTS
        )
        self._latency = histogram(
            "e2e_request_latency_seconds", "From arrival to the last token.", OF_REQUESTS
        )
        self._between = histogram(
            "inter_token_latency_seconds",
            "From one token of an answer to the next.",
            BETWEEN_TOKENS,
        )
        self._last: WeakKeyDictionary[Answer, float] = WeakKeyDictionary()
        self._busy_until = 0.0

    def on_step(self, record: StepRecord) -> None:
        """A step has run. (The next one may have begun before: time counts once.)"""
        begin = max(record.began, self._busy_until)
        self._busy.inc(max(record.ended - begin, 0.0))
        self._busy_until = record.ended

    def on_tokens(self, collector: Collector, answer: Answer, count: int) -> None:
        """See `Observer`."""
        metrics, now = collector.metrics, collector.metrics.last_token_time
        assert now is not None  # tokens have come
        if metrics.num_output_tokens == count:  # its first
            self._prompt_tokens.inc(len(collector.request.prompt_token_ids))
            if metrics.ttft is not None:
                self._ttft.observe(metrics.ttft)
            if metrics.first_scheduled_time is not None:
                self._queued.observe(metrics.first_scheduled_time - metrics.arrival_time)
        self._tokens.inc(count)
        before = self._last.get(answer)
        if before is not None:
            # Drafts that were right come at once: the gap is shared among them.
            for _ in range(count):
                self._between.observe((now - before) / count)
        self._last[answer] = now

    def on_end(self, collector: Collector) -> None:
        """See `Observer`."""
        reasons = [answer.finish_reason or FinishReason.ABORT for answer in collector.answers]
        for reason in reasons:
            self._ends[reason].inc()
        latency = collector.metrics.latency
        if latency is not None and set(reasons) <= {FinishReason.STOP, FinishReason.LENGTH}:
            self._latency.observe(latency)
