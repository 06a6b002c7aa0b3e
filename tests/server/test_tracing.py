"""Spans of requests: what is in them, whose trace they belong to, and where they go."""

import importlib
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from minillm_serve.cli import main
from minillm_serve.server.app import create_app
from minillm_serve.server.tracing import Tracing, export_to
from tests.server.running import eventually, slow_down, unread
from tests.server.test_faults import fail_at

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Traced:
    """A server under test with the spans that it makes."""

    def __init__(self, start, llm, **settings):
        self.memory = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.tracing = Tracing(provider, "tiny", llm.engine.clock)
        self.running = start({"tracing": self.tracing, **settings}, llm=llm)

    def spans(self, name="llm_request"):
        """Those of one kind, in order of their ends; nothing else is left in the meantime."""
        self.running.wait_until_idle()
        assert self.tracing._contexts == {}
        return [span for span in self.memory.get_finished_spans() if span.name == name]


@pytest.fixture(scope="module")
def shared(start, make_llm):
    traced = Traced(start, slow_down(make_llm(), 0.002))
    with traced.running:
        yield traced


@pytest.fixture
def traced(shared):
    shared.memory.clear()
    return shared


def ask(traced, headers=None, **body):
    """Sends a request for a completion."""
    body = {"prompt": "hello", "max_tokens": 6, "ignore_eos": True, **body}
    return traced.running.client.post("/v1/completions", json=body, headers=headers)


def test_a_span_tells_what_the_usage_tells_and_how_long_it_took(traced):
    before = time.time_ns()
    reply = ask(traced, {"X-Request-Id": "mine-1"}, n=2, temperature=0.5, top_p=0.9)
    after = time.time_ns()
    (span,) = traced.spans()
    usage = reply.json()["usage"]
    assert span.attributes["gen_ai.usage.prompt_tokens"] == usage["prompt_tokens"] == 5
    assert span.attributes["gen_ai.usage.completion_tokens"] == usage["completion_tokens"] == 12
    told = {name.removeprefix("gen_ai."): value for name, value in span.attributes.items()}
    assert told["request.id"] == "mine-1"
    assert (told["request.model"], told["response.model"]) == ("tiny", "tiny")
    assert (told["request.n"], told["request.max_tokens"]) == (2, 6)
    assert (told["request.temperature"], told["request.top_p"]) == (0.5, 0.9)
    assert told["response.finish_reasons"] == ("length", "length")
    assert (span.kind, span.status.status_code) == (SpanKind.SERVER, StatusCode.UNSET)
    assert before <= span.start_time < span.end_time <= after
    assert told["latency.e2e"] == pytest.approx((span.end_time - span.start_time) / 1e9, abs=1e-6)


def test_below_it_lie_its_phases_one_after_the_other(traced):
    ask(traced)
    (span,) = traced.spans()
    (queue,), (prefill,), (decode,) = map(traced.spans, ("queue", "prefill", "decode"))
    assert {phase.parent.span_id for phase in (queue, prefill, decode)} == {span.context.span_id}
    assert queue.start_time == span.start_time
    assert (queue.end_time, prefill.end_time) == (prefill.start_time, decode.start_time)
    assert decode.end_time <= span.end_time
    names = ("time_in_queue", "time_in_model_prefill", "time_in_model_decode")
    for phase, name in zip((queue, prefill, decode), names, strict=True):
        seconds = span.attributes[f"gen_ai.latency.{name}"]
        assert seconds == pytest.approx((phase.end_time - phase.start_time) / 1e9, abs=1e-6)


def test_a_clients_trace_goes_on(traced):
    """Each prompt of a request has a span of its own, all in one trace."""
    ask(traced, {"traceparent": f"00-{TRACE}-{PARENT}-01"}, prompt=["a", "b"])
    spans = traced.spans()
    assert len(spans) == 2
    for span in spans:
        assert f"{span.context.trace_id:032x}" == TRACE
        assert f"{span.parent.span_id:016x}" == PARENT
    ask(traced)
    assert f"{traced.spans()[-1].context.trace_id:032x}" != TRACE


@pytest.mark.parametrize("value", [b"00-123-456-01", b"", b"\xff\xfe", b"x" * 9000])
def test_a_trace_that_is_none_begins_a_new_one(traced, value):
    assert ask(traced, {b"traceparent": value, b"tracestate": value}).status_code == 200
    (span,) = traced.spans()
    assert span.parent is None


def test_what_a_client_does_not_sample_is_not_noted(traced):
    assert ask(traced, {"traceparent": f"00-{TRACE}-{PARENT}-00"}).status_code == 200
    assert traced.spans() == []


def test_whoever_is_not_let_in_has_no_span(traced):
    assert ask(traced, prompt=[96] * 5000).status_code == 400
    assert ask(traced, logit_bias={"1000": 1}).status_code == 400
    assert traced.spans() == []


def test_a_client_that_hangs_up_is_an_abort_and_no_error(traced):
    with unread(traced.running, max_tokens=400, ignore_eos=True):
        eventually(lambda: traced.running.llm.engine.scheduler.running)
    (span,) = traced.spans()
    assert span.attributes["gen_ai.response.finish_reasons"] == ("abort",)
    assert span.status.status_code is StatusCode.UNSET


def test_an_error_is_one(start, make_llm):
    traced = Traced(start, fail_at(make_llm(), 3, MemoryError("no room")))
    with traced.running:
        assert ask(traced).status_code == 500
        (span,) = traced.spans()
        assert span.attributes["gen_ai.response.finish_reasons"] == ("error",)
        assert span.status.status_code is StatusCode.ERROR
        assert "no room" in span.status.description


def test_who_waits_too_long_has_been_in_the_queue_and_nowhere_else(start, make_llm):
    llm = slow_down(make_llm(max_num_seqs=1), 0.02)
    traced = Traced(start, llm, max_queue_seconds=0.1)
    with traced.running:
        with unread(traced.running, max_tokens=400, ignore_eos=True):
            eventually(lambda: llm.engine.scheduler.running)
            assert ask(traced).status_code == 503
        late, _ = traced.spans()
        assert late.attributes["gen_ai.response.finish_reasons"] == ("deadline",)
        assert late.status.status_code is StatusCode.ERROR
        below = [
            span
            for span in traced.memory.get_finished_spans()
            if span.parent and span.parent.span_id == late.context.span_id
        ]
        assert [span.name for span in below] == ["queue"]


@contextmanager
def collector():
    """A collector of spans: where it is, and what has come."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces", received
        finally:
            server.shutdown()
            thread.join()


def test_a_collector_gets_every_span_before_the_server_has_ended(start, make_llm, monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=lab")
    with collector() as (endpoint, received):
        llm = make_llm()
        tracing = Tracing(export_to(endpoint), "tiny", llm.engine.clock)
        with start({"tracing": tracing}, llm=llm) as running:
            for _ in range(3):
                running.complete(max_tokens=2)
        found = [
            (resource, span)
            for request in received
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
    assert [span.name for _, span in found].count("llm_request") == 3
    about = {a.key: a.value.string_value for a in found[0][0].resource.attributes}
    assert about["service.name"] == "minillm-serve"
    assert about["deployment.environment"] == "lab"


def test_without_a_collector_everybody_is_served_and_the_server_ends(start, make_llm, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1")
    llm = make_llm()
    tracing = Tracing(export_to("http://127.0.0.1:1/v1/traces"), "tiny", llm.engine.clock)
    with start({"tracing": tracing}, llm=llm) as running:
        assert running.complete(max_tokens=2)["choices"]
        running.wait_until_idle()
    assert llm.llm_engine.observers == []


@pytest.mark.parametrize("endpoint", ["localhost:4317", "grpc://a:1", "http://", ""])
def test_a_collector_without_a_url_is_refused(endpoint, capsys):
    assert main(["serve", "--otlp-traces-endpoint", endpoint]) == 1
    assert "http://localhost:4318/v1/traces" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "minillm_serve.server.tracing")
    assert main(["serve", "--otlp-traces-endpoint", "http://localhost:4318/v1/traces"]) == 1
    assert "pip install 'minillm-serve[tracing]'" in capsys.readouterr().err


def test_a_server_that_traces_nothing_does_not_need_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    for name in ("app", "service", "tracing"):
        monkeypatch.delitem(sys.modules, f"minillm_serve.server.{name}")
    assert importlib.import_module("minillm_serve.server.app").create_app is not create_app
    with pytest.raises(ModuleNotFoundError, match=r"opentelemetry\.sdk"):
        importlib.import_module("minillm_serve.server.tracing")
