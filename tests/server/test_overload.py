"""Ten times more than it holds, and a third hangs up: who is served gets his tokens, nothing stays.

The requests of three rounds are the same, so whatever grows from one to the next is a leak.
"""

import asyncio
import gc
import os
import random
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.load.answers import read
from benchmarks.load.client import PATH, Client
from minillm_serve import SamplingParams
from minillm_serve.answer import Answer
from minillm_serve.async_llm import Answers
from minillm_serve.collector import Collector
from minillm_serve.core import Request, Sequence
from tests.server.running import PATIENCE, eventually, run_async, slow_down

#: Share of clients that hang up, and after how many seconds at most.
LEAVING, LEAVE_WITHIN = 0.3, (0.0, 0.01, 0.1, 1.0)
OURS = (Answer, Answers, Collector, Request, Sequence)


def make_bodies(count, draw):
    """Requests of many kinds; prompts that begin alike, sampled ones with seeds of their own."""
    stem = [draw.randrange(3, 97) for _ in range(24)]
    bodies = []
    for index in range(count):
        own = [draw.randrange(3, 97) for _ in range(draw.randint(1, 20))]
        chosen = {"temperature": 1.0, "seed": index} if index % 3 == 0 else {"temperature": 0.0}
        bodies.append(
            {
                "prompt": stem[: draw.randint(0, 24)] + own,
                "max_tokens": draw.randint(1, 24),
                "ignore_eos": True,
                "skip_special_tokens": False,  # so that the text tells the ids
                **chosen,
            }
        )
    return bodies


def offline(llm, bodies):
    """The texts that `LLM.generate` gives: of an engine that refuses nobody."""
    params = [
        SamplingParams(**{name: value for name, value in body.items() if name != "prompt"})
        for body in bodies
    ]
    outputs = llm.generate([body["prompt"] for body in bodies], params, use_tqdm=False)
    return [output.outputs[0].text for output in outputs]


async def half_a_request(url):
    """Connects, sends the beginning of a body, and is gone."""
    host, port = url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{{".encode())
    await writer.drain()
    writer.close()


async def ask(client, url, body, due, leaves_after):
    """One client: what it was answered, or None if it has hung up before."""
    await asyncio.sleep(due)
    if leaves_after == 0:
        return await half_a_request(url)
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    try:
        async with asyncio.timeout(leaves_after):
            return read(await client.send(body, client.clock()))
    except TimeoutError:
        return None


async def crowd(url, bodies, seconds, draw):
    """Everybody's answers, in their order; arrivals are spread over some seconds."""
    client = Client(url, timeout=PATIENCE)
    dues = sorted(draw.uniform(0, seconds) for _ in bodies)
    leaving = [
        draw.choice(LEAVE_WITHIN) * draw.random() if draw.random() < LEAVING else None
        for _ in bodies
    ]
    people = zip(bodies, dues, leaving, strict=True)
    return await asyncio.gather(*(ask(client, url, *person) for person in people))


def held(running):
    """What a leak would make grow: descriptors, threads, the server's tasks, our own objects."""
    loop = running._server._server.servers[0].get_loop()
    names = [thread.name.rsplit("_", 1)[0] for thread in threading.enumerate()]
    gc.collect()
    found = Counter(type(thing).__name__ for thing in gc.get_objects() if type(thing) in OURS)
    if sys.platform == "linux":
        found["descriptors"] = len(os.listdir("/proc/self/fd"))
    found["tasks"] = len(asyncio.all_tasks(loop))
    # asyncio's pool is filled up as it is needed, to a limit.
    found["threads"] = sum(name != "asyncio" for name in names)
    assert names.count("asyncio") <= 64
    return found


def resident():
    """Memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.parametrize(
    ("count", "slots", "queue", "seconds"),
    [(200, 4, 16, 0.4), pytest.param(2000, 8, 192, 4.0, marks=pytest.mark.slow)],
)
def test_a_tenfold_overload_with_hangups_leaks_nothing_and_serves_exactly_b99_b101_b117(
    start, make_llm, count, slots, queue, seconds
):
    bodies = make_bodies(count, random.Random(5))
    wanted = offline(make_llm(), bodies)
    llm = make_llm(num_blocks=512, max_num_seqs=slots, max_num_waiting=queue)
    with start(llm=slow_down(llm, 0.002)) as running:
        others = held(running)  # of other tests in this process
        kept, memory, outcomes = [], [], Counter()
        for turn in range(3):
            answers = run_async(crowd(running.url, bodies, seconds, random.Random(turn)))
            for answer, body, text in zip(answers, bodies, wanted, strict=True):
                if answer is None:
                    outcomes["left"] += 1
                elif answer.is_refused:
                    assert int(answer.headers["retry-after"]) >= 1
                    assert "too many requests wait already" in answer.problem
                    outcomes["refused"] += 1
                else:
                    assert answer.problem is None
                    assert (answer.text, answer.output_tokens) == (text, body["max_tokens"])
                    outcomes["served"] += 1
            del answers
            running.wait_until_idle()
            for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
                assert running.figure(name) == 0
            assert running.client.get("/health").status_code == 200
            # What the last step named is kept until there is another: here it is this one's.
            running.complete(max_tokens=1)
            first = kept[0] if kept else held(running)
            eventually(lambda before=first: held(running) <= before, f"no more held than {first}")
            kept.append(held(running))
            memory.append(resident() if sys.platform == "linux" else 0.0)
        assert outcomes["served"] >= 3 * slots
        assert outcomes["refused"] > count
        assert 0.5 < outcomes["left"] / (LEAVING * 3 * count) < 1.1
        assert all((kept[-1] - others)[kind.__name__] <= 1 for kind in OURS)
        assert memory[2] - memory[0] < 16
