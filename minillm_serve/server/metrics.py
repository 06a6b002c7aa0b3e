"""`/metrics`: Prometheus' figures, under vLLM's names with `minillm:` before them."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as PrometheusCollector
from starlette.responses import Response

from minillm_serve.async_llm import AsyncLLM
from minillm_serve.core import StepRecord
from minillm_serve.server.busy import BusyShare
from minillm_serve.server.tally import Tally


class Metrics:
    """All figures of one server, in a registry of its own: two servers in one process are two.

    Args:
        engine: whose figures.
        model: the model's name, a label of all.
    """

    def __init__(self, engine: AsyncLLM, model: str) -> None:
        self.registry = CollectorRegistry()
        self._engine = engine
        self._tally = Tally(self.registry, model, engine.llm.engine.admission.max_len)
        self.registry.register(_EnginesBooks(engine, model, self._tally.busy))
        self._http = Counter(
            "minillm:http_requests",
            "Requests by method, route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )

    def response(self) -> Response:
        """The figures at this moment."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)

    def count(self, method: str, route: str, status: int) -> None:
        """A request over HTTP has been answered.

        Args:
            method: one of a few, or "other".
            route: its template, or "unmatched": never a path that somebody made up.
            status: 499 for a client that left before there was one.
        """
        self._http.labels(method, route, str(status)).inc()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Notes what the engine does, as long as the `with` lasts."""
        llm_engine, core = self._engine.llm.llm_engine, self._engine.llm.engine
        before = core.on_step

        def on_step(record: StepRecord) -> None:
            self._tally.on_step(record)
            if before is not None:
                before(record)

        llm_engine.observers.append(self._tally)
        core.on_step = on_step
        try:
            yield
        finally:
            llm_engine.observers.remove(self._tally)
            core.on_step = before


class _EnginesBooks(PrometheusCollector):
    """What the engine knows anyway, read when it is asked for: it cannot go stale."""

    def __init__(self, engine: AsyncLLM, model: str, busy: BusyShare) -> None:
        self._engine = engine
        self._model = model
        self._busy = busy

    def collect(self) -> Iterator[Metric]:
        """The families. Each figure is one read of an integer, while the engine may be running."""
        yield from self._gauges()
        yield from self._counters()
        core = self._engine.llm.engine
        kept = CounterMetricFamily(
            "minillm:spec_decode_num_accepted_tokens_per_pos",
            "Verifications in which the draft at this position was kept.",
            labels=["model_name", "position"],
        )
        # As many as the longest row of drafts so far: the engine's settings bound it.
        for position, count in enumerate(core.spec_stats.num_accepted_tokens_per_pos):
            kept.add_metric([self._model, str(position)], count)
        yield kept
        blocks = core.scheduler.blocks
        sizes = {"block_size": blocks.block_size, "num_gpu_blocks": blocks.pool.num_blocks}
        info = GaugeMetricFamily(
            "minillm:cache_config_info",
            "The KV cache: tokens a block, and blocks, on whatever device.",
            labels=["model_name", *sizes],
        )
        info.add_metric([self._model, *map(str, sizes.values())], 1)
        yield info

    def _gauges(self) -> Iterator[Metric]:
        core, health = self._engine.llm.engine, self._engine.health
        scheduler, blocks = core.scheduler, core.scheduler.blocks
        now, window = core.clock(), f"{self._busy.window:g}"
        for name, text, value in (
            ("num_requests_running", "Sequences in the batch.", len(scheduler.running)),
            ("num_requests_waiting", "Sequences in the queue.", scheduler.num_waiting),
            (
                "kv_cache_usage_perc",
                "Share of the KV blocks that sequences name, from 0 to 1; what is only cached is "
                "free.",
                blocks.num_used / blocks.pool.num_blocks,
            ),
            (
                "engine_busy_perc",
                f"Share of the last {window} seconds in which a step ran, from 0 to 1.",
                self._busy.at(now, health.seconds_since_progress),
            ),
            ("engine_healthy", "1, or 0 if it is stuck or dead.", health.problem is None),
        ):
            family = GaugeMetricFamily(f"minillm:{name}", text, labels=["model_name"])
            family.add_metric([self._model], value)
            yield family

    def _counters(self) -> Iterator[Metric]:
        core = self._engine.llm.engine
        prefix, drafts = core.prefix_stats, core.spec_stats
        for name, text, value in (
            (
                "num_preemptions",
                "Sequences that lost their blocks.",
                core.scheduler.num_preemptions,
            ),
            ("prefix_cache_queries", "Prompt tokens that were looked up.", prefix.queries),
            ("prefix_cache_hits", "Prompt tokens that were found.", prefix.hits),
            ("spec_decode_num_drafts", "Verifications with drafts.", drafts.num_drafts),
            ("spec_decode_num_draft_tokens", "Drafts.", drafts.num_draft_tokens),
            ("spec_decode_num_accepted_tokens", "Drafts kept.", drafts.num_accepted_tokens),
        ):
            family = CounterMetricFamily(f"minillm:{name}", text, labels=["model_name"])
            family.add_metric([self._model], value)
            yield family
