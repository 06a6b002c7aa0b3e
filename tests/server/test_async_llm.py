"""The engine in its own thread: asyncio's face, without HTTP."""

import asyncio
import threading
import time

import pytest

from minillm_serve import SamplingParams
from minillm_serve.async_llm import AsyncLLM
from minillm_serve.core import Overloaded, PartError, Request, RequestRefused
from minillm_serve.core.invariants import check_idle
from minillm_serve.core.scheduler import ContinuousScheduler
from minillm_serve.engine_loop import EngineDead
from tests.server.running import eventually, run_async, slow_down
from tests.server.test_faults import fail_at

LONG = SamplingParams(max_tokens=400, temperature=0, ignore_eos=True)


def run(work, llm, **options):
    """Runs a coroutine over an engine, which is idle afterwards if it is alive."""

    async def over():
        engine = AsyncLLM(llm, **options)
        try:
            return await work(engine)
        finally:
            assert await engine.stop(30.0) or not engine.health.alive

    answer = run_async(over())
    assert not llm.llm_engine._collectors
    check_idle(llm.engine.scheduler)
    return answer


async def whole(engine, prompt, params, **options):
    return "".join([piece async for piece in engine.stream(prompt, params, **options)])


def test_it_gives_the_answers_of_the_plain_face(make_llm):
    prompts = ["hello", "world", [5, 6, 7]]
    params = [
        SamplingParams(max_tokens=20, seed=3, temperature=1.3, n=2, logprobs=2),
        SamplingParams(max_tokens=20, temperature=0, stop=["a", "b"]),
        SamplingParams(max_tokens=20, seed=4, prompt_logprobs=1),
    ]
    plain = make_llm().generate(prompts, params, use_tqdm=False)

    async def work(engine):
        pairs = zip(prompts, params, strict=True)
        return await asyncio.gather(*(engine.generate(p, s) for p, s in pairs))

    for one, other in zip(run(work, make_llm()), plain, strict=True):
        assert [a.token_ids for a in one.outputs] == [a.token_ids for a in other.outputs]
        assert [a.text for a in one.outputs] == [a.text for a in other.outputs]
        assert [a.finish_reason for a in one.outputs] == [a.finish_reason for a in other.outputs]
        assert one.prompt == other.prompt


def test_streams_side_by_side_get_their_own_pieces_and_all_of_them_b49(make_llm):
    params = SamplingParams(max_tokens=30, temperature=0, ignore_eos=True)
    prompts = ["hello", "world", "again", "and"]
    plain = [o.outputs[0].text for o in make_llm().generate(prompts, params, use_tqdm=False)]

    async def work(engine):
        return await asyncio.gather(*(whole(engine, prompt, params) for prompt in prompts))

    assert run(work, make_llm()) == plain


@pytest.mark.parametrize("way", ["break", "cancel", "error"])
def test_leaving_frees_the_blocks_at_once_b99(make_llm, way):
    llm = slow_down(make_llm())

    async def read(engine):
        async for _ in engine.stream("hello", LONG):
            if way == "error":
                raise ZeroDivisionError
            if way == "break":
                break
            await asyncio.sleep(0)

    async def work(engine):
        reading = asyncio.create_task(read(engine))
        if way == "cancel":
            while not llm.engine.scheduler.running:
                await asyncio.sleep(0.001)
            reading.cancel()
        await asyncio.wait({reading})
        while llm.engine.has_unfinished:
            await asyncio.sleep(0.001)
        assert llm.engine.scheduler.blocks.num_used == 0
        assert len(await whole(engine, "hello", SamplingParams(max_tokens=3, ignore_eos=True))) == 3

    run(work, llm)


def test_a_slow_reader_holds_nobody(make_llm):
    async def work(engine):
        slow = engine.stream("hello", params)
        first = await anext(slow)
        other = await whole(engine, "world", SamplingParams(max_tokens=80, ignore_eos=True))
        while engine.llm.engine.has_unfinished:  # the slow one's answer is done without him
            await asyncio.sleep(0.001)
        rest = "".join([piece async for piece in slow])
        return first + rest, other

    params = SamplingParams(max_tokens=150, temperature=0, ignore_eos=True)
    text, other = run(work, make_llm())
    assert text == make_llm().generate("hello", params, use_tqdm=False)[0].outputs[0].text
    assert other


def test_the_event_loop_goes_on_while_a_step_runs(make_llm):
    """A step that waits for the event loop comes to an end: so nobody waits for the step."""
    llm, ticked = make_llm(), threading.Event()
    forward = llm.engine.executor.forward

    def waiting(inputs):
        assert ticked.wait(60)
        return forward(inputs)

    llm.engine.executor.forward = waiting

    async def work(engine):
        asking = asyncio.create_task(engine.generate("a", SamplingParams(max_tokens=1)))
        await asyncio.sleep(0.05)
        ticked.set()
        return await asking

    assert run(work, llm).outputs[0].finish_reason


def test_several_come_in_together_or_not_at_all(make_llm):
    llm = slow_down(make_llm(max_num_waiting=3, max_num_seqs=1))
    params = SamplingParams(max_tokens=40, ignore_eos=True)

    async def work(engine):
        first = await engine.open([await engine.ask("a", params)])
        async with first:
            while not llm.engine.scheduler.running:
                await asyncio.sleep(0.001)
            asked = [await engine.ask("b", params) for _ in range(5)]
            with pytest.raises(Overloaded):
                await engine.open(asked)
            assert llm.engine.scheduler.num_waiting == 0
            wrong = await engine.ask([10**6], params)
            with pytest.raises(RequestRefused, match="expected an id"):
                await engine.open([*asked[:2], wrong])
            assert llm.engine.scheduler.num_unfinished == 1
            assert len([delta async for delta in first]) == 40

    run(work, llm)


def test_one_text_has_one_answer(make_llm):
    async def work(engine):
        with pytest.raises(ValueError, match="n=2"):
            await whole(engine, "a", SamplingParams(n=2))

    run(work, make_llm())


def test_who_is_cancelled_while_he_comes_in_goes_out_again_b44(make_llm):
    """At every moment: before the engine has heard of him, while it lets him in, after."""
    llm = slow_down(make_llm(), 0.002)

    async def work(engine):
        async with await engine.open([await engine.ask("busy", LONG)]):
            for turn in range(60):
                asked = await engine.ask("hello", LONG)
                opening = asyncio.create_task(engine.open([asked]))
                for _ in range(turn % 6):
                    await asyncio.sleep(0.0005)
                if opening.done():
                    await opening.result().__aexit__()
                    continue
                opening.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await opening
            while llm.engine.scheduler.num_unfinished > 1:
                await asyncio.sleep(0.001)
            assert len(engine._loop._listeners) == 1

    run(work, llm)


def test_stop_waits_for_those_who_are_served_and_lets_nobody_in(make_llm):
    llm = slow_down(make_llm(), 0.005)

    async def work(engine):
        params = SamplingParams(max_tokens=50, ignore_eos=True)
        reading = asyncio.create_task(engine.generate("hello", params))
        while not llm.engine.scheduler.running:
            await asyncio.sleep(0.001)
        assert not await engine.stop(0.05)
        with pytest.raises(EngineDead):
            await engine.generate("late")
        output = await reading
        assert await engine.stop()
        assert not engine.health.alive
        with pytest.raises(EngineDead, match="has been stopped"):
            await engine.generate("later")
        return output.outputs[0]

    assert len(run(work, llm).token_ids) == 50


def test_everybody_hears_of_the_end_b49(make_llm):
    """Two readers, both in the middle, and one that waits."""
    llm = slow_down(make_llm(max_num_seqs=2))

    async def read(engine):
        async with await engine.open([await engine.ask("hello", LONG)]) as answers:
            return [delta.finish_reason async for _, delta in answers]

    async def work(engine):
        reading = [asyncio.create_task(read(engine)) for _ in range(3)]
        while len(llm.engine.scheduler.running) < 2 or not llm.engine.scheduler.num_waiting:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        engine.abort_all()
        return await asyncio.gather(*reading)

    ends = run(work, llm)
    assert [reasons[-1] for reasons in ends] == ["abort"] * 3
    assert all(reason is None for reasons in ends for reason in reasons[:-1])


def test_a_failed_step_is_its_requests_alone(make_llm):
    async def work(engine):
        with pytest.raises(RuntimeError, match="boom"):
            await whole(engine, "hello", LONG)
        assert engine.health.problem is None
        return await engine.generate("hello", SamplingParams(max_tokens=4, ignore_eos=True))

    output = run(work, fail_at(make_llm(), 3, RuntimeError("boom")))
    assert len(output.outputs[0].token_ids) == 4


def test_a_fault_of_the_books_ends_everybody_and_no_loop_spins_b112(make_llm):
    """A scheduler that raises whenever it is asked: nobody's step, and it would never end."""
    llm = make_llm()

    def broken():
        raise KeyError("lost")

    async def work(engine):
        llm.engine.scheduler.schedule = broken
        output = await engine.generate("hello", LONG)
        assert output.outputs[0].finish_reason == "error"
        await asyncio.to_thread(eventually, lambda: not engine.health.alive)
        assert "lost" in engine.health.problem
        with pytest.raises(EngineDead, match="lost"):
            await engine.generate("hello", LONG)

    async def over():
        await work(AsyncLLM(llm))

    run_async(over())


def test_a_part_that_fails_while_it_lets_somebody_in_ends_those_who_are_there_b112(make_llm):
    """Its books may be wrong: nobody is left waiting for steps that do not come."""

    class Mine(ContinuousScheduler):
        is_broken = False

        def add(self, sequence, *siblings):
            if Mine.is_broken:
                raise IndexError("lost")
            super().add(sequence, *siblings)

    llm = slow_down(make_llm(parts={"scheduler": Mine}))

    async def work():
        engine = AsyncLLM(llm)
        reading = asyncio.create_task(engine.generate("hello", LONG))
        while not llm.engine.scheduler.running:
            await asyncio.sleep(0.001)
        Mine.is_broken = True
        with pytest.raises(PartError, match="lost"):
            await engine.generate("world", LONG)
        output = await asyncio.wait_for(reading, 60)
        assert output.outputs[0].finish_reason == "error"
        assert not await asyncio.to_thread(engine._loop._thread.join, 60)
        assert "lost" in engine.health.problem

    run_async(work())


def test_an_engine_that_hangs_has_a_problem_and_lets_its_readers_go_b112(make_llm):
    llm, hold = make_llm(), threading.Event()
    forward = llm.engine.executor.forward

    def hanging(inputs):
        while hold.is_set():
            time.sleep(0.005)
        return forward(inputs)

    llm.engine.executor.forward = hanging

    async def work(engine):
        hold.set()
        first = asyncio.create_task(engine.generate("hello", LONG))
        while not llm.engine.has_unfinished:
            await asyncio.sleep(0.001)
        late = asyncio.create_task(engine.generate("late", LONG))
        for reading in (first, late):
            with pytest.raises(EngineDead, match="has not come to an end"):
                await reading
        assert engine.health.alive
        assert engine.health.seconds_since_progress > 0.3
        hold.clear()
        await asyncio.to_thread(eventually, lambda: engine.health.problem is None)
        return await engine.generate("hello", SamplingParams(max_tokens=2, ignore_eos=True))

    assert len(run(work, llm, stuck_after=0.3).outputs[0].token_ids) == 2


def test_an_idle_engine_is_well_however_long_it_idles(make_llm):
    async def work(engine):
        await asyncio.sleep(0.3)
        assert engine.health.problem is None
        assert engine.health.seconds_since_progress == 0

    run(work, make_llm(), stuck_after=0.1)


def test_a_name_that_is_free_again_is_not_taken_from_its_next_owner_b41(make_llm):
    """Late news of somebody who has gone does not end whoever has his name now."""
    llm = make_llm()
    engine, params = llm.llm_engine, SamplingParams(max_tokens=2, ignore_eos=True)

    def ask():
        return Request(request_id="job", prompt_token_ids=(5, 6), params=params), None

    (first,) = engine.add([ask()])
    while not first.finished:
        engine.step()
    engine.drop(first)
    (second,) = engine.add([ask()])
    engine.drop(first)
    while not second.finished:
        assert llm.engine.has_unfinished
        engine.step()
    assert second.answers[0].finish_reason == "length"
    engine.drop(second)
