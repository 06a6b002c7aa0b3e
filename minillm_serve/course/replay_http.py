"""Serves the scoreboard's trace over HTTP: every user is a client of a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx

from minillm_serve import LLM
from minillm_serve.async_llm import AsyncLLM
from minillm_serve.core import RequestMetrics, StepRecord
from minillm_serve.course.replay import Served
from minillm_serve.course.trace import User
from minillm_serve.server.app import create_app
from minillm_serve.server.background import BackgroundServer
from minillm_serve.server.settings import ServerSettings

NAME = "trace"


def replay_http(llm: LLM, users: Sequence[User]) -> Served:
    """Serves users who come over time, in real time; times are those that clients see.

    Args:
        llm: nobody else's meanwhile.
        users: in order of arrival.
    """
    steps, clock = list[StepRecord](), llm.engine.clock
    llm.engine.on_step = steps.append
    app = create_app(AsyncLLM(llm), ServerSettings(served_model_name=NAME))

    async def ask(client: httpx.AsyncClient, user: User, began: float) -> RequestMetrics:
        await asyncio.sleep(max(0.0, began + user.arrival - clock()))
        metrics = RequestMetrics(arrival_time=began + user.arrival)
        body = {
            "prompt": list(user.prompt),
            "max_tokens": user.output_len,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        async with client.stream("POST", "/v1/completions", json=body) as reply:
            reply.raise_for_status()
            async for line in reply.aiter_lines():
                event = json.loads(line[6:]) if line.startswith("data: {") else {}
                if event.get("choices"):
                    metrics.last_token_time = metrics.finished_time = clock()
                    metrics.first_token_time = metrics.first_token_time or clock()
                if event.get("usage"):
                    metrics.num_output_tokens = event["usage"]["completion_tokens"]
        return metrics

    async def ask_all(url: str) -> tuple[list[RequestMetrics], float]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
            await client.get("/health")  # opens a connection, so that nobody's time pays for it
            began = clock()
            metrics = await asyncio.gather(*(ask(client, user, began) for user in users))
            return list(metrics), clock() - began

    with BackgroundServer(app) as url, ThreadPoolExecutor(1) as thread:
        # In a thread: a notebook has a loop running in this one.
        requests, seconds = thread.submit(asyncio.run, ask_all(url)).result()
    llm.engine.on_step = None
    return Served(
        requests,
        seconds,
        steps,
        block_size=llm.kv_cache.block_size,
        slots=llm.engine.scheduler.max_num_seqs,
    )
