"""Who sends when: all at once, at moments that were drawn or recorded, or each after the last."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.load.client import Client, Recording
from benchmarks.workloads import Job


@dataclass(frozen=True, slots=True)
class Extras:
    """What goes into every body beside the job.

    Attributes:
        model: the name that the server knows.
        cache_salt: lets nobody find what another turn has left in a prefix cache; None sends none.
    """

    model: str
    cache_salt: str | None = None

    def body(self, job: Job) -> dict[str, Any]:
        """The body of a request: greedy, of exactly the job's length, streamed, with its usage."""
        salt = {} if self.cache_salt is None else {"cache_salt": self.cache_salt}
        return {
            "model": self.model,
            "prompt": job.prompt,
            "max_tokens": job.output_len,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **salt,
        }


async def open_loop(
    client: Client, jobs: Sequence[Job], times: Sequence[float], extras: Extras
) -> list[Recording]:
    """Sends each job at its time, whatever has become of the others.

    Args:
        client: sends.
        jobs: to send.
        times: of each, in seconds from now, ascending.
        extras: of all bodies.
    """
    began = client.clock()
    sending: list[asyncio.Task[Recording]] = []
    for job, time in zip(jobs, times, strict=True):
        due = began + time
        if (early := due - client.clock()) > 0:
            await asyncio.sleep(early)
        sending.append(asyncio.create_task(client.send(extras.body(job), due)))
    return list(await asyncio.gather(*sending))


async def closed_loop(
    client: Client, jobs: Sequence[Job], concurrency: int, extras: Extras
) -> list[Recording]:
    """So many people send the jobs, each the next one as soon as the last is answered.

    Such a crowd slows down with its server, and so can never overload it: the latencies are those
    of a server whose users wait politely.
    """
    recordings: dict[int, Recording] = {}
    waiting = iter(enumerate(jobs))

    async def one_person() -> None:
        for index, job in waiting:
            recordings[index] = await client.send(extras.body(job), client.clock())

    await asyncio.gather(*(one_person() for _ in range(concurrency)))
    return [recordings[index] for index in range(len(jobs))]
