"""What the dashboard shows: rows of panels, each with its queries in PromQL."""

from dataclasses import dataclass

#: Chooses the servers and the model that the variables above the dashboard name.
WHO = '{job=~"$job", model_name=~"$model_name"}'
#: A stretch of time that holds a few scrapes, whatever the zoom.
SPAN = "[$__rate_interval]"
QUANTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))


@dataclass(frozen=True, slots=True)
class Query:
    """One curve, or several.

    Attributes:
        expr: in PromQL.
        legend: the curve's name; `{{label}}` stands for a label's value.
    """

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes:
        title: of it.
        unit: of its values, as Grafana calls it; "suffix: x" is one that it does not know.
        queries: what is drawn.
        about: what a reader should know.
        is_number: shows the last value in large rather than a curve.
        stacked: curves lie on top of each other.
        most: where the axis ends, if it always ends there.
    """

    title: str
    unit: str
    queries: tuple[Query, ...]
    about: str = ""
    is_number: bool = False
    stacked: bool = False
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading, three or four side by side."""

    title: str
    panels: tuple[Panel, ...]


def gauge(name: str) -> str:
    """A gauge, over all servers chosen."""
    return f"sum(minillm:{name}{WHO})"


def rate(name: str, by: str = "") -> str:
    """What a counter gains a second."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate(minillm:{name}{WHO}{SPAN}))"


def mean(name: str) -> str:
    """The mean of a histogram's observations."""
    return f"{rate(f'{name}_sum')} / {rate(f'{name}_count')}"


def quantiles(name: str) -> tuple[Query, ...]:
    """Three quantiles of a histogram, as exact as its buckets are narrow."""
    return tuple(
        Query(f"histogram_quantile({share}, {rate(f'{name}_bucket', 'le')})", label)
        for share, label in QUANTILES
    )


TOKENS = "suffix: tok/s"
HIT_RATE = f"{rate('prefix_cache_hits_total')} / {rate('prefix_cache_queries_total')}"
KEPT, DRAFTED = "spec_decode_num_accepted_tokens_total", "spec_decode_num_draft_tokens_total"
ACCEPTANCE = f"{rate(KEPT)} / {rate(DRAFTED)}"
LENGTH = f"1 + {rate(KEPT)} / {rate('spec_decode_num_drafts_total')}"
PER_POSITION = (
    f"{rate('spec_decode_num_accepted_tokens_per_pos_total', 'position')} "
    f"/ on() group_left() {rate('spec_decode_num_drafts_total')}"
)
BUSY = f"avg(rate(minillm:engine_busy_seconds_total{WHO}{SPAN}))"


def number(title: str, unit: str, expr: str, about: str = "") -> Panel:
    """A panel that shows one value in large."""
    return Panel(title, unit, (Query(expr, title),), about, is_number=True)


NOW = Row(
    "Now",
    (
        number("Running", "short", gauge("num_requests_running"), "Sequences in the batch."),
        number("Waiting", "short", gauge("num_requests_waiting"), "Sequences in the queue."),
        number("KV cache", "percentunit", f"avg(minillm:kv_cache_usage_perc{WHO})"),
        number(
            "Busy",
            "percentunit",
            f"avg(minillm:engine_busy_perc{WHO})",
            "Share of the last 10 seconds in which a step ran.",
        ),
        number("Output", TOKENS, rate("generation_tokens_total")),
        number(
            "Well",
            "short",
            f"min(minillm:engine_healthy{WHO})",
            "1, or 0 if an engine is stuck or dead.",
        ),
    ),
)
TRAFFIC = Row(
    "Traffic",
    (
        Panel(
            "Answers by their end",
            "reqps",
            (Query(rate("request_success_total", "finished_reason"), "{{finished_reason}}"),),
            "abort: the client has hung up.",
            stacked=True,
        ),
        Panel(
            "Replies by status",
            "reqps",
            (
                Query(
                    f'sum by (status) (rate(minillm:http_requests_total{{job=~"$job"}}{SPAN}))',
                    "{{status}}",
                ),
            ),
            "429 and 503 tell of overload, 499 of a client that left before there was a status.",
            stacked=True,
        ),
        Panel(
            "Tokens",
            TOKENS,
            (
                Query(rate("prompt_tokens_total"), "prompts"),
                Query(rate("generation_tokens_total"), "answers"),
            ),
        ),
        Panel(
            "Sequences",
            "short",
            (
                Query(gauge("num_requests_running"), "running"),
                Query(gauge("num_requests_waiting"), "waiting"),
            ),
            stacked=True,
        ),
        Panel("Length of prompts", "suffix: tok", quantiles("request_prompt_tokens")),
        Panel("Length of answers", "suffix: tok", quantiles("request_generation_tokens")),
    ),
)
LATENCY = Row(
    "Latency",
    (
        Panel("Time to first token", "s", quantiles("time_to_first_token_seconds")),
        Panel("Between two tokens", "s", quantiles("inter_token_latency_seconds")),
        Panel("Whole requests", "s", quantiles("e2e_request_latency_seconds")),
        Panel("In the queue", "s", quantiles("request_queue_time_seconds")),
        Panel(
            "Time per output token",
            "s",
            quantiles("request_time_per_output_token_seconds"),
            "The mean of each request.",
        ),
        Panel(
            "Where the time goes",
            "s",
            tuple(
                Query(mean(f"request_{phase}_time_seconds"), phase)
                for phase in ("queue", "prefill", "decode")
            ),
            "Means over requests.",
            stacked=True,
        ),
    ),
)
CACHE = Row(
    "KV cache and prefix cache",
    (
        Panel(
            "Blocks in use",
            "percentunit",
            (Query(f"minillm:kv_cache_usage_perc{WHO}", "{{instance}}"),),
            "What only the prefix cache holds counts as free.",
            most=1.0,
        ),
        Panel(
            "Preemptions",
            "suffix: /s",
            (Query(rate("num_preemptions_total"), "sequences"),),
            "They lose their blocks and are computed, or copied, again. More than a few: the pool "
            "is too small for the batch.",
        ),
        Panel(
            "Prefix cache, hit rate",
            "percentunit",
            (Query(HIT_RATE, "hits / looked up"),),
            "Tokens of prompts, counted once a request.",
            most=1.0,
        ),
        Panel(
            "Prefix cache, tokens",
            TOKENS,
            (
                Query(rate("prefix_cache_queries_total"), "looked up"),
                Query(rate("prefix_cache_hits_total"), "found"),
            ),
        ),
    ),
)
SPECULATION = Row(
    "Speculation",
    (
        Panel("Drafts kept", "percentunit", (Query(ACCEPTANCE, "kept / drafted"),), most=1.0),
        Panel(
            "Tokens of a verification",
            "suffix: tok",
            (Query(LENGTH, "mean"),),
            "The token of the model's own included.",
        ),
        Panel(
            "Kept by position",
            "percentunit",
            (Query(PER_POSITION, "{{position}}"),),
            "Share of the verifications in which the draft at this position was kept.",
            most=1.0,
        ),
    ),
)
EXECUTOR = Row(
    "Executor",
    (
        Panel("Busy", "percentunit", (Query(BUSY, "share of time"),), most=1.0),
        Panel(
            "Steps",
            "suffix: /s",
            (Query(rate("iteration_tokens_total_count"), "steps"),),
        ),
        Panel(
            "Tokens of a step",
            "suffix: tok",
            (Query(mean("iteration_tokens_total"), "mean"), *quantiles("iteration_tokens_total")),
            "Of prompts and answers together.",
        ),
    ),
)
ROWS = (NOW, TRAFFIC, LATENCY, CACHE, SPECULATION, EXECUTOR)
