"""A server from outside: its `/metrics`, read now and then, and what two readings say together."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import httpx
from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
PREFIX = "minillm:"


@dataclass(frozen=True, slots=True)
class Reading:
    """All samples of one moment.

    Attributes:
        time: in seconds, of whatever clock.
        samples: (name without prefix, labels) -> value.
    """

    time: float
    samples: Mapping[tuple[str, Labels], float] = field(
        default_factory=lambda: MappingProxyType({})
    )

    @classmethod
    def of(cls, text: str, now: float) -> Reading:
        """Reads what `/metrics` says."""
        return cls(
            now,
            {
                (sample.name.removeprefix(PREFIX), frozenset(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            },
        )

    def total(self, name: str, **labels: str) -> float:
        """Sum of all samples of this name that have these labels; 0 if there is none."""
        wanted = labels.items()
        return sum(
            value for (n, ls), value in self.samples.items() if n == name and ls >= set(wanted)
        )


def read(url: str, clock: Callable[[], float] = time.monotonic) -> Reading:
    """Reads a server's `/metrics`.

    Raises:
        httpx.HTTPError: it cannot be had.
    """
    # Plain HTTP: there are no certificates to check, and loading them would take longer than this.
    reply = httpx.get(f"{url}/metrics", timeout=10.0, verify=False)
    reply.raise_for_status()
    return Reading.of(reply.text, clock())


@dataclass(frozen=True, slots=True)
class Span:
    """What happened between two readings. Gauges are those of the later one.

    Attributes:
        before: the earlier reading.
        after: the later one.
    """

    before: Reading
    after: Reading

    @property
    def seconds(self) -> float:
        """Between the two."""
        return self.after.time - self.before.time

    def grown(self, name: str, **labels: str) -> float:
        """By how much a counter has grown."""
        return self.after.total(name, **labels) - self.before.total(name, **labels)

    def mean(self, histogram: str) -> float | None:
        """Mean of what a histogram was given meanwhile, in its unit; None if it was nothing."""
        count = self.grown(f"{histogram}_count")
        return self.grown(f"{histogram}_sum") / count if count else None

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return int(self.after.total("num_requests_waiting"))

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return int(self.after.total("num_requests_running"))

    @property
    def kv_usage(self) -> float:
        """Share of the KV blocks in use, from 0 to 1."""
        return self.after.total("kv_cache_usage_perc")

    @property
    def busy(self) -> float:
        """Share of the time in which a step ran, from 0 to 1."""
        if not self.seconds:
            return 0.0
        return min(self.grown("engine_busy_seconds_total") / self.seconds, 1.0)

    @property
    def ttft(self) -> float | None:
        """Mean time to first token of those who got it meanwhile, in seconds."""
        return self.mean("time_to_first_token_seconds")

    @property
    def tpot(self) -> float | None:
        """Mean gap between two tokens meanwhile, in seconds."""
        return self.mean("inter_token_latency_seconds")

    @property
    def tokens_per_second(self) -> float:
        """Output tokens a second."""
        return self.grown("generation_tokens_total") / self.seconds if self.seconds else 0.0

    @property
    def refused(self) -> int:
        """Requests that were told to come again later."""
        return int(self.grown("http_requests_total", status="429"))

    @property
    def aborted(self) -> int:
        """Answers whose readers have gone."""
        return int(self.grown("request_success_total", finished_reason="abort"))


def gpu_utilisation() -> str | None:
    """What `nvidia-smi dmon` says of the GPUs at this moment; None where there are none.

    `sm` is the share of the last second in which some kernel ran, `mem` that in which memory moved.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "dmon", "-s", "u", "-c", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout if done.returncode == 0 else None
