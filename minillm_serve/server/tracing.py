"""OpenTelemetry: a span for each request, in its client's trace. Needs the extra `tracing`."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from opentelemetry.context import Context, attach, create_key, detach, get_current, set_value
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from starlette.types import ASGIApp, Receive, Scope, Send

import minillm_serve
from minillm_serve.answer import Answer
from minillm_serve.collector import Collector
from minillm_serve.core import FinishReason, RequestMetrics
from minillm_serve.llm_engine import LLMEngine
from minillm_serve.server.guard import request_id_of

#: Where a client says which trace a request belongs to (W3C Trace Context, 2021).
TRACE_HEADERS = frozenset({"traceparent", "tracestate"})
_REQUEST_ID = create_key("minillm.request_id")


def export_to(endpoint: str) -> TracerProvider:
    """Sends spans to a collector, in batches and from a thread of its own.

    Args:
        endpoint: its URL for OTLP over HTTP, such as http://localhost:4318/v1/traces. (Headers,
            certificates, sampling and so on come from OpenTelemetry's own variables, `OTEL_...`.)

    Raises:
        ValueError: that is no URL.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"--otlp-traces-endpoint {endpoint!r}: expected a URL, such as "
            "http://localhost:4318/v1/traces"
        )
    ours = Resource({"service.name": "minillm-serve", "service.version": minillm_serve.__version__})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
    return provider


class Tracing:
    """An observer of the engine: it makes a span of each request when it has ended.

    The span is called `llm_request` and has vLLM's attributes; below it lie `queue`, `prefill` and
    `decode`. Nothing that a client wrote is in them but the id of his request.

    Args:
        provider: takes the spans.
        model: the model's name.
        clock: the engine's, in seconds.
    """

    def __init__(self, provider: TracerProvider, model: str, clock: Callable[[], float]) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("minillm_serve", minillm_serve.__version__)
        self._model = model
        self._clock = clock
        self._contexts: dict[str, Context] = {}  # of requests that are asked or served

    @contextmanager
    def watching(self, engine: LLMEngine) -> Iterator[None]:
        """Notes what the engine does, as long as the `with` lasts."""
        engine.observers.append(self)
        try:
            yield
        finally:
            engine.observers.remove(self)

    @contextmanager
    def asking(self, request_ids: Iterable[str]) -> Iterator[None]:
        """Requests that are asked within the `with` belong to the trace of whoever asks."""
        names = list(request_ids)
        self._contexts.update(dict.fromkeys(names, get_current()))
        try:
            yield
        except BaseException:  # they have not come in
            for name in names:
                self._contexts.pop(name, None)
            raise

    def close(self) -> None:
        """Sends what is left; gives up after some ten seconds if nobody answers."""
        self._provider.shutdown()

    def on_tokens(self, collector: Collector, answer: Answer, count: int) -> None:
        """See `Observer`."""

    def on_end(self, collector: Collector) -> None:
        """See `Observer`."""
        metrics = collector.metrics
        context = self._contexts.pop(collector.request.request_id, Context())
        end = metrics.finished_time if metrics.finished_time is not None else self._clock()
        at = self._unix_ns()
        span = self._tracer.start_span(
            "llm_request",
            context,
            SpanKind.SERVER,
            self._attributes(collector, context, end),
            start_time=at(metrics.arrival_time),
        )
        if span.is_recording():
            self._add_phases(span, metrics, end, at)
            reasons = {answer.finish_reason for answer in collector.answers}
            if reasons & {FinishReason.ERROR, FinishReason.DEADLINE}:
                span.set_status(Status(StatusCode.ERROR, collector.error or "deadline"))
        span.end(at(end))

    def _attributes(
        self, collector: Collector, context: Context, end: float
    ) -> dict[str, AttributeValue]:
        """Seconds and tokens. The names are vLLM's and those of OpenTelemetry's conventions."""
        params, metrics = collector.request.params, collector.metrics
        ends = [answer.finish_reason or FinishReason.ABORT for answer in collector.answers]
        num_prompt = len(collector.request.prompt_token_ids)
        num_tokens = sum(len(answer.token_ids) for answer in collector.answers)
        began, first, last = _moments(metrics)
        known: dict[str, AttributeValue | None] = {
            "gen_ai.request.id": str(context.get(_REQUEST_ID, collector.request.request_id)),
            "gen_ai.request.model": self._model,
            "gen_ai.response.model": self._model,
            "gen_ai.request.n": params.n,
            "gen_ai.request.max_tokens": params.max_tokens,
            "gen_ai.request.temperature": params.temperature,
            "gen_ai.request.top_p": params.top_p,
            "gen_ai.response.finish_reasons": [reason.value for reason in ends],
            "gen_ai.usage.prompt_tokens": num_prompt,
            "gen_ai.usage.completion_tokens": num_tokens,
            # What the conventions call the same today.
            "gen_ai.usage.input_tokens": num_prompt,
            "gen_ai.usage.output_tokens": num_tokens,
            "gen_ai.usage.cache_read.input_tokens": metrics.num_cached_tokens,
            "gen_ai.latency.time_in_queue": _gap(metrics.arrival_time, began),
            "gen_ai.latency.time_to_first_token": metrics.ttft,
            "gen_ai.latency.time_in_model_prefill": _gap(began, first),
            "gen_ai.latency.time_in_model_decode": _gap(first, last),
            "gen_ai.latency.time_in_model_inference": _gap(began, last),
            "gen_ai.latency.e2e": end - metrics.arrival_time,
            "minillm.num_preemptions": metrics.num_preemptions,
        }
        return {name: value for name, value in known.items() if value is not None}

    def _add_phases(
        self, span: Span, metrics: RequestMetrics, end: float, at: Callable[[float], int]
    ) -> None:
        began, first, last = _moments(metrics)
        below = set_span_in_context(span)
        for name, start, stop in (
            ("queue", metrics.arrival_time, end if began is None else began),
            ("prefill", began, end if first is None else first),
            ("decode", first, last),
        ):
            if start is not None and stop is not None:
                phase = self._tracer.start_span(name, below, start_time=at(start))
                phase.end(at(stop))

    def _unix_ns(self) -> Callable[[float], int]:
        """Turns moments of the engine's clock, which began anywhere, into the world's time."""
        begin = time.time_ns() - round(self._clock() * 1e9)
        return lambda moment: begin + round(moment * 1e9)


class Continuing:
    """ASGI middleware: what is done for a request belongs to the trace that its headers name.

    It stands within `Guard`, which gives requests their ids.

    Args:
        app: whose requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Speaks ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = ((name.decode("latin-1"), value) for name, value in scope["headers"])
        told = {name: value.decode("latin-1") for name, value in headers if name in TRACE_HEADERS}
        context = TraceContextTextMapPropagator().extract(told, Context())
        token = attach(set_value(_REQUEST_ID, request_id_of(scope), context))
        try:
            await self._app(scope, receive, send)
        finally:
            detach(token)


def _moments(metrics: RequestMetrics) -> tuple[float | None, float | None, float | None]:
    return metrics.first_scheduled_time, metrics.first_token_time, metrics.last_token_time


def _gap(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else end - begin
