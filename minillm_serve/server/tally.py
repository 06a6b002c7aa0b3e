"""Counts and times that the engine's own books do not keep, noted as they happen."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Histogram

from minillm_serve.answer import Answer
from minillm_serve.collector import Collector
from minillm_serve.core import FinishReason, RequestMetrics, StepRecord
from minillm_serve.server.busy import BusyShare
from minillm_serve.server.histograms import histograms


class Tally:
    """An observer of the engine; it is called in the engine's thread.

    Rules, by which the figures agree with each other and with what clients are told:

    - a prompt's tokens count once, when the first token of an answer to it is there;
    - a generated token counts if it is part of an answer: as in the usage;
    - each answer that was let in ends with one reason, and is counted once under it; a client that
      hangs up makes it "abort";
    - times are those of requests; a request that is aborted has no end-to-end latency, nor any
      other figure that is known only at the end.

    Args:
        registry: where the metrics are.
        model: the model's name, a label of all.
        max_len: most tokens of a prompt and its answer.

    Attributes:
        busy: how busy the executor has been of late.
    """

    def __init__(self, registry: CollectorRegistry, model: str, max_len: int) -> None:
        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            names = ("model_name", *labels)
            return Counter(f"minillm:{name}", text, names, registry=registry)

        self._prompt_tokens = counter("prompt_tokens", "Tokens of prompts.").labels(model)
        self._tokens = counter("generation_tokens", "Tokens of answers.").labels(model)
        self._busy = counter(
            "engine_busy_seconds", "Seconds in which a step ran: its rate is the busy fraction."
        ).labels(model)
        ends = counter("request_success", "Answers by how they ended.", ["finished_reason"])
        # All are there from the start: the number of series does not grow.
        self._ends = {reason: ends.labels(model, reason.value) for reason in FinishReason}
        self._histograms = {
            name: Histogram(
                f"minillm:{name}", text, ("model_name",), buckets=bounds, registry=registry
            ).labels(model)
            for name, (text, bounds) in histograms(max_len).items()
        }
        self._last: WeakKeyDictionary[Answer, float] = WeakKeyDictionary()
        self.busy = BusyShare()

    def on_step(self, record: StepRecord) -> None:
        """A step has run."""
        self._busy.inc(self.busy.add(record.began, record.ended))
        self._observe("iteration_tokens_total", record.num_tokens)

    def on_tokens(self, collector: Collector, answer: Answer, count: int) -> None:
        """See `Observer`."""
        metrics, now = collector.metrics, collector.metrics.last_token_time
        assert now is not None  # tokens have come
        if metrics.num_output_tokens == count:  # its first
            self._prompt_tokens.inc(len(collector.request.prompt_token_ids))
            if metrics.ttft is not None:
                self._observe("time_to_first_token_seconds", metrics.ttft)
            if metrics.first_scheduled_time is not None:
                self._observe(
                    "request_queue_time_seconds",
                    metrics.first_scheduled_time - metrics.arrival_time,
                )
        self._tokens.inc(count)
        before = self._last.get(answer)
        if before is not None:
            # Drafts that were right come at once: the gap is shared among them.
            for _ in range(count):
                self._observe("inter_token_latency_seconds", (now - before) / count)
        self._last[answer] = now

    def on_end(self, collector: Collector) -> None:
        """See `Observer`."""
        reasons = [answer.finish_reason or FinishReason.ABORT for answer in collector.answers]
        for reason in reasons:
            self._ends[reason].inc()
        latency = collector.metrics.latency
        if latency is not None and set(reasons) <= {FinishReason.STOP, FinishReason.LENGTH}:
            self._observe("e2e_request_latency_seconds", latency)
            self._observe_sizes(collector)
            self._observe_phases(collector.metrics, collector.answers)

    def _observe_sizes(self, collector: Collector) -> None:
        params = collector.request.params
        self._observe("request_prompt_tokens", len(collector.request.prompt_token_ids))
        self._observe(
            "request_generation_tokens", sum(len(answer.token_ids) for answer in collector.answers)
        )
        self._observe("request_params_n", params.n)
        if params.max_tokens is not None:
            self._observe("request_params_max_tokens", params.max_tokens)

    def _observe_phases(self, metrics: RequestMetrics, answers: Sequence[Answer]) -> None:
        began, first, last = (
            metrics.first_scheduled_time,
            metrics.first_token_time,
            metrics.last_token_time,
        )
        if began is None or first is None or last is None:
            return
        self._observe("request_prefill_time_seconds", first - began)
        self._observe("request_decode_time_seconds", last - first)
        self._observe("request_inference_time_seconds", last - began)
        # Answers to one prompt come side by side: the longest one took all of the time.
        num_gaps = max(len(answer.token_ids) for answer in answers) - 1
        if num_gaps > 0:
            self._observe("request_time_per_output_token_seconds", (last - first) / num_gaps)

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)
