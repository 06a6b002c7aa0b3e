"""`minillm-serve bench serve`: a server under load, and the same engine without one."""

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.load.answers import Answer, read
from benchmarks.load.client import Client
from benchmarks.load.drive import Extras, closed_loop, open_loop
from benchmarks.load.page import page
from benchmarks.load.processes import OfflineProcess, ServerProcess, cpu_seconds, served_model
from benchmarks.load.summary import summarise, table
from benchmarks.report import parser, positive
from benchmarks.workloads import Job, chat, of_lengths, w1, w2
from minillm_serve.cli_serve import KEY_VARIABLE
from minillm_serve.sim.arrivals import Poisson
from minillm_serve.sim.metrics import SLO
from minillm_serve.sim.trace_files import replay
from minillm_serve.stamp import stamp

WORKLOADS = {"w1": w1, "w2": w2, "chat": chat}
AT_ONCE = math.inf


def main(argv: Sequence[str]) -> int:
    """Starts a server, or takes a URL; sends requests; prints, and writes JSON, PNG and HTML.

    Raises:
        ValueError: an option cannot be used, or the server cannot be reached.
    """
    chosen, rest = _parser().parse_known_args(argv)
    if chosen.url is not None and (rest or chosen.offline):
        what = "--offline" if chosen.offline else " ".join(rest)
        raise ValueError(f"{what}: only for a server that is started here, not for --url")
    slo = SLO(chosen.ttft_slo, chosen.tpot_slo)
    jobs, times = _load(chosen)
    runs, pictures = [], []
    with ExitStack() as children:
        pid, url = None, chosen.url
        if url is None:
            _say("starting a server")
            server = children.enter_context(ServerProcess(chosen.model, rest))
            pid, url = server.pid, server.url
        client = Client(url, api_key=chosen.api_key, timeout=chosen.timeout)
        name = served_model(url, chosen.api_key)
        offline = None
        if chosen.offline:
            offline = children.enter_context(OfflineProcess(chosen.model, rest))
        if chosen.warm_up:
            _say("warming up: two short requests")
            _warm_up(client, name, jobs, offline)
        for turn in range(chosen.repeat):
            # Another turn must not find its prompts in the prefix cache.
            salt = f"{os.getpid()}-{turn}" if chosen.repeat > 1 else None
            _say(f"run {turn + 1} of {chosen.repeat}: {len(jobs)} requests")
            run, answers = _turn(chosen, client, jobs, times, Extras(name, salt), slo, pid)
            if offline is not None:
                seconds, texts = offline.run(jobs)
                rate = sum(job.output_len for job in jobs) / seconds
                run["offline_tok_s"], run["ratio"] = rate, run.get("output_tok_s", 0.0) / rate
                run["same_text"] = sum(a.text == t for a, t in zip(answers, texts, strict=True))
            runs.append(run)
            print(f"run {turn + 1}\n{_told(run)}", flush=True)
            if chosen.output and run["served"]:
                pictures += _picture(answers, run, slo)
    if offline is not None:
        ratio = statistics.median(run["ratio"] for run in runs)
        print(f"HTTP / offline: {ratio:.3f} (median of {len(runs)})")
    if chosen.output:
        _save(chosen.output, _record(chosen, [name, *rest], jobs, slo, runs), pictures)
    return 0 if all(run["served"] for run in runs) else 1


def _say(text: str) -> None:
    """What goes on, for who waits; results alone go to stdout."""
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    options = parser("serve", __doc__)
    options.set_defaults(repeat=1)
    options.epilog = "Options that are not named here go to `minillm-serve serve`."
    options.add_argument("--url", help="of a server that runs; by default one is started")
    options.add_argument("--model", default="smollm2-135m", help="to start one with (%(default)s)")
    options.add_argument("--api-key", default=os.environ.get(KEY_VARIABLE), help="of the server")
    options.add_argument(
        "--workload", choices=sorted(WORKLOADS), default="w1", help="what is asked (%(default)s)"
    )
    options.add_argument("--requests", type=positive, help="requests (w1, chat: 64, w2: 48)")
    options.add_argument("--seed", type=int, default=0, help="of prompts and arrivals (0)")
    when = options.add_mutually_exclusive_group()
    when.add_argument("--rate", type=float, default=AT_ONCE, help="a second, Poisson (all at once)")
    when.add_argument("--concurrency", type=positive, help="people who each wait for their answer")
    when.add_argument("--trace", type=Path, help=".csv or .jsonl: time,prompt_tokens,output_tokens")
    options.add_argument("--speed", type=float, default=1.0, help="of the trace (%(default)s)")
    options.add_argument("--ttft-slo", type=float, default=math.inf, help="promised, in seconds")
    options.add_argument("--tpot-slo", type=float, default=math.inf, help="promised, in seconds")
    options.add_argument("--timeout", type=float, default=600.0, help="of a request (%(default)s)")
    options.add_argument("--no-warm-up", dest="warm_up", action="store_false", help="begin at once")
    options.add_argument(
        "--offline", action="store_true", help="the same jobs by LLM.generate, in turn"
    )
    return options


def _load(chosen: argparse.Namespace) -> tuple[list[Job], list[float]]:
    """What is sent, and when, in seconds; a closed loop does not ask for the times."""
    if chosen.trace is not None:
        arrivals = list(islice(replay(chosen.trace, speed=chosen.speed), chosen.requests))
        if not arrivals:
            raise ValueError(f"{chosen.trace}: no requests in it")
        lengths = [(arrival.prompt_tokens, arrival.output_tokens) for arrival in arrivals]
        return of_lengths(lengths, chosen.seed), [arrival.time for arrival in arrivals]
    workload = WORKLOADS[chosen.workload]
    jobs = workload(chosen.requests, chosen.seed) if chosen.requests else workload(seed=chosen.seed)
    if chosen.rate == AT_ONCE:
        return jobs, [0.0] * len(jobs)
    draw = np.random.default_rng(chosen.seed)
    return jobs, list(islice(Poisson(chosen.rate).times(draw), len(jobs)))


def _warm_up(
    client: Client, name: str, jobs: Sequence[Job], offline: OfflineProcess | None
) -> None:
    """Lets everybody compile and touch what is needed. (Prompts from behind: no prefix is left.)"""
    short = [Job(job.prompt[::-1][:32], 4) for job in jobs[:2]]
    asyncio.run(open_loop(client, short, [0.0] * len(short), Extras(name)))
    if offline is not None:
        offline.run(short)


def _turn(
    chosen: argparse.Namespace,
    client: Client,
    jobs: Sequence[Job],
    times: Sequence[float],
    extras: Extras,
    slo: SLO,
    pid: int | None,
) -> tuple[dict[str, Any], list[Answer]]:
    """One run, and how much CPU it took."""
    own, servers = time.process_time(), cpu_seconds(pid) if pid else None
    began = time.perf_counter()
    if chosen.concurrency is None:
        recordings = asyncio.run(open_loop(client, jobs, times, extras))
    else:
        recordings = asyncio.run(closed_loop(client, jobs, chosen.concurrency, extras))
    wall = time.perf_counter() - began
    own = time.process_time() - own
    answers = [read(recording) for recording in recordings]
    run = summarise(answers, [job.output_len for job in jobs], slo)
    run["cores_of_client"] = own / wall
    if pid is not None and servers is not None and (after := cpu_seconds(pid)) is not None:
        run["cores_of_server"] = (after - servers) / wall
    return run, answers


def _told(run: dict[str, Any]) -> str:
    lines = [table(run), f"  the client took {run['cores_of_client']:.2f} cores"]
    if "cores_of_server" in run:
        lines[-1] += f", the server {run['cores_of_server']:.2f}"
    if "ratio" in run:
        lines.append(
            f"  offline: {run['offline_tok_s']:.1f} output tok/s; HTTP / offline {run['ratio']:.3f}"
            f"; {run['same_text']} of {run['requests']} texts are the same"
        )
    return "\n".join(lines)


def _record(
    chosen: argparse.Namespace,
    server: Sequence[str],
    jobs: Sequence[Job],
    slo: SLO,
    runs: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    what = chosen.trace.name if chosen.trace else chosen.workload.upper()
    how = "as recorded" if chosen.trace else "all at once"
    if chosen.concurrency is not None:
        how = f"by {chosen.concurrency} people who wait for their answers"
    elif chosen.rate != AT_ONCE:
        how = f"at {chosen.rate:g} requests/s"
    promised = {n: v if v < math.inf else None for n, v in (("ttft", slo.ttft), ("tpot", slo.tpot))}
    return {
        "stamp": stamp(
            seed=chosen.seed, requests=len(jobs), server=list(server), slo=promised
        ),
        "title": f"{what} over HTTP: {len(jobs)} requests {how}",
        "runs": list(runs),
    }  # fmt: skip


def _picture(answers: Sequence[Answer], run: dict[str, Any], slo: SLO) -> list[bytes]:
    """A PNG of a run, where matplotlib is installed."""
    try:
        from benchmarks.load.picture import draw
        from minillm_serve.course.render import to_png
    except ImportError:
        return []
    return [to_png(draw(answers, run, slo))]


def _save(path: Path, record: dict[str, Any], pictures: Sequence[bytes]) -> None:
    """Writes JSON, the last run's picture, and a page with everything."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    if pictures:
        path.with_suffix(".png").write_bytes(pictures[-1])
    path.with_suffix(".html").write_text(page(record, pictures), encoding="utf-8")
    print(f"written to {path}, and beside it as .html")
