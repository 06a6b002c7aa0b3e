"""Shapes that take long to compile, or for ever: they hold nobody but their own callers."""

import asyncio
import threading

import pytest

from minillm_serve import SamplingParams, StructuredOutputsParams, async_llm
from minillm_serve.async_llm import AsyncLLM
from minillm_serve.core import Overloaded, RequestRefused
from minillm_serve.runtime.structured import compile_queue
from minillm_serve.runtime.structured.grammar import GrammarCompiler
from tests.llm.tiny import tokenizer
from tests.models.tiny import VOCAB
from tests.server.running import eventually, run_async


class Slow:
    """What happens while "slow" is compiled, which takes until the test lets it go.

    Attributes:
        compiled: expressions, in the order in which their turns came.
        begun: it has begun.
        go: lets it go.
    """

    def __init__(self):
        self.compiled, self.begun, self.go = [], threading.Event(), threading.Event()


@pytest.fixture
def slow(monkeypatch):
    slow, compile_kind = Slow(), GrammarCompiler._compile_kind

    def waiting(self, asked):
        slow.compiled.append(asked.regex)
        if asked.regex == "slow":
            slow.begun.set()
            assert slow.go.wait(60)
        return compile_kind(self, asked)

    monkeypatch.setattr(GrammarCompiler, "_compile_kind", waiting)
    monkeypatch.setattr(async_llm, "LOOK_EVERY", 0.02)
    yield slow
    slow.go.set()


def regex(pattern):
    return SamplingParams(structured_outputs=StructuredOutputsParams(regex=pattern))


def run(work, llm):
    """Runs a coroutine over an engine; one that hangs is a failure."""

    async def over():
        async with AsyncLLM(llm) as engine:
            return await asyncio.wait_for(work(engine), 30)

    return run_async(over())


def test_what_takes_too_long_to_compile_is_refused_by_name_and_the_next_has_its_turn(
    make_llm, slow
):
    async def work(engine):
        engine._compiling._allowance = 0.1
        first = asyncio.create_task(engine.ask([5], regex("slow")))
        assert await asyncio.to_thread(slow.begun.wait, 30)
        other = asyncio.create_task(engine.ask([5], regex("[ab]{3}")))
        for asking in (first, engine.ask([5], regex("slow"))):
            with pytest.raises(RequestRefused, match=r"^structured_outputs\.regex: it takes too l"):
                await asking
        assert (await other)[0].grammar is not None
        assert slow.compiled == ["slow", "[ab]{3}"]
        # The end of the process does not wait for them.
        assert all(t.daemon for t in threading.enumerate() if "grammar" in t.name)

    run(work, make_llm())


def test_whoever_has_left_while_his_shape_was_compiled_does_not_hold_the_next(make_llm, slow):
    async def work(engine):
        engine._compiling._allowance = 0.1
        first = asyncio.create_task(engine.ask([5], regex("slow")))
        assert await asyncio.to_thread(slow.begun.wait, 30)
        first.cancel()
        request, _ = await engine.ask([5], regex("[ab]{3}"))
        assert request.grammar is not None

    run(work, make_llm())


def test_only_so_many_may_wait_to_be_compiled_and_whoever_leaves_keeps_no_place(
    make_llm, slow, monkeypatch
):
    monkeypatch.setattr(compile_queue, "MOST_WAITING", 3)

    async def work(engine):
        asked = ["slow", "left", "b", "b"]
        waiting = [asyncio.create_task(engine.ask([5], regex(pattern))) for pattern in asked]
        assert await asyncio.to_thread(slow.begun.wait, 30)
        with pytest.raises(Overloaded, match="3 others wait already"):
            await engine.ask([5], regex("c"))
        waiting[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[1]
        waiting.append(asyncio.create_task(engine.ask([5], regex("c"))))
        slow.go.set()
        asked = await asyncio.gather(*waiting, return_exceptions=True)
        assert [isinstance(one, tuple) for one in asked] == [True, False, True, True, True]
        assert slow.compiled == ["slow", "b", "c"]

    run(work, make_llm())


def test_the_time_in_which_a_request_must_begin_counts_while_its_shape_is_compiled(make_llm, slow):
    async def work(engine):
        clock = engine.llm.engine.clock
        asking = asyncio.create_task(engine.ask([5], regex("slow"), deadline=7.0))
        assert await asyncio.to_thread(slow.begun.wait, 30)
        compiling = clock()
        slow.go.set()
        request, _ = await asking
        assert request.deadline <= compiling + 7.0

    run(work, make_llm())


def test_one_that_is_compiled_for_ever_holds_no_other_thread(slow):
    compiler = GrammarCompiler(tokenizer(), VOCAB, {2})
    shapes = [StructuredOutputsParams(regex=pattern) for pattern in ("slow", "a")]
    first, second = (
        threading.Thread(target=compiler.compile, args=(shape,), daemon=True) for shape in shapes
    )
    first.start()
    assert slow.begun.wait(30)
    second.start()
    eventually(lambda: compiler.find(shapes[1]) is not None, patience=10)
    assert compiler.find(shapes[0]) is None
    slow.go.set()
    first.join()
