"""Parts of somebody's own in the real engine: told of, checked at the door, named in errors."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from minillm_serve import SamplingParams
from minillm_serve.core import (
    Accept,
    InvariantViolation,
    Overloaded,
    PartError,
    Refuse,
    RequestRefused,
)
from minillm_serve.core.invariants import check_idle
from minillm_serve.parts import SLOTS
from minillm_serve.runtime.attention.conformance import find_difference
from minillm_serve.runtime.attention.functions import DecodeFunctionAttention, FunctionAttention
from minillm_serve.runtime.attention.naive import NaiveAttention
from minillm_serve.runtime.attention.registry import BACKENDS, Needs
from minillm_serve.runtime.attention.torch_backend import TorchAttention
from tests.llm.parts_right import (
    RIGHT,
    MyAdmission,
    MyBlockPool,
    MyPrefixCache,
    MyScheduler,
    my_attention,
    my_decode,
    my_kv_budget,
)
from tests.llm.parts_wrong import WRONG
from tests.llm.tiny import save_tiny
from tests.runtime.paged import make_problem, solve

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = ["Hello", "a" * 30, "xyz" * 3, "q", "w" * 17]
CPU = torch.device("cpu")


def serve(llm, prompts=PROMPTS):
    return [o.outputs[0].token_ids for o in llm.generate(prompts, GREEDY, use_tqdm=False)]


@pytest.fixture(scope="session")
def windowed_dir(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("windowed"), "mistral")


FITTED = {
    **{slot: {slot: part} for slot, part in RIGHT.items()},
    "decode": {"attention": {"decode": my_decode}},
    "a backend's class": {"attention": NaiveAttention},
    "a backend": {"attention": TorchAttention()},
    "a partial": {"kv_budget": partial(my_kv_budget)},
    # A function that attends to numbers has nothing to do with codes.
    "all but codes": {slot: part for slot, part in RIGHT.items() if slot != "kv_quantizer"},
    "all but attention": {slot: part for slot, part in RIGHT.items() if slot != "attention"},
}


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("parts", FITTED.values(), ids=FITTED)
def test_a_right_part_gives_the_same_tokens(make_llm, parts, overlap):
    drafting = {"method": "ngram", "adaptive": False} if "accept" in parts else None
    if drafting and overlap:
        pytest.skip("a step with drafts is known before the next one is scheduled")
    options = {"async_scheduling": overlap, "speculative_config": drafting}
    kind = {"kv_cache_dtype": "int8" if "kv_quantizer" in parts else "auto"}
    assert serve(make_llm(parts=parts, **options, **kind)) == serve(make_llm(**kind))


@pytest.mark.parametrize("slot", ["block_pool", "prefix_cache", "attention"])
def test_a_right_part_gives_the_same_tokens_where_memory_is_short(make_llm, slot):
    llm = make_llm(parts={slot: RIGHT[slot]}, num_blocks=10, block_size=8)
    assert serve(llm) == serve(make_llm())
    assert llm.engine.scheduler.num_preemptions > 0


def test_a_prefix_cache_of_somebody_s_own_finds_what_ours_finds(make_llm):
    ours, theirs = make_llm(), make_llm(parts={"prefix_cache": MyPrefixCache})
    asked = ["to be or not to be" * 3 + end for end in ("", "?", ", that is", "")] * 2
    for llm in (ours, theirs):
        assert serve(llm, asked) == serve(make_llm(prefix_cache=None), asked)
        serve(llm, PROMPTS)
    assert theirs.prefix_stats == ours.prefix_stats
    assert ours.prefix_stats.hits > 0


@pytest.mark.model
def test_the_embedded_model_answers_alike_with_a_budget_and_a_pool_of_somebody_s_own():
    from minillm_serve import LLM

    options = {"kv_cache_memory": 2**26, "max_num_seqs": 4}
    parts = {slot: RIGHT[slot] for slot in ("kv_budget", "block_pool")}
    ours, theirs = LLM(**options), LLM(**options, parts=parts)
    assert theirs.kv_cache.num_blocks == ours.kv_cache.num_blocks == 2**26 // (16 * 46_080)
    prompts = ["What is a KV cache?", "Count to five.", "The capital of France"]
    assert serve(theirs, prompts) == serve(ours, prompts)


def test_the_engine_tells_whose_parts_it_has(make_llm, capsys):
    llm = make_llm(parts={"scheduler": MyScheduler, "kv_budget": my_kv_budget})
    line = (
        "parts: kv_budget is yours (tests.llm.parts_right.my_kv_budget); "
        "scheduler is yours (tests.llm.parts_right.MyScheduler); "
        "block_pool, prefix_cache, attention, admission are minillm_serve's"
    )
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert str(llm.parts) == line
    assert [part.slot for part in llm.parts.yours] == ["kv_budget", "scheduler"]
    assert llm.parts.get("scheduler").value is MyScheduler
    assert llm.parts.get("attention") is None
    with pytest.raises(AttributeError):
        llm.parts.yours = ()


def test_an_engine_of_ours_alone_says_nothing(make_llm, capsys):
    llm = make_llm()
    assert "parts" not in capsys.readouterr().err
    assert str(llm.parts).endswith("admission are minillm_serve's")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": {"prefix_cash": 1}}, r"no slot 'prefix_cash'; choose from:\n  kv_budget: A fun"),
        ({"parts": [MyBlockPool]}, "expected a mapping from slots to parts"),
        ({"parts": RIGHT, "num_blocks": 9}, "give num_blocks or a kv_budget part, not both"),
    ],
)
def test_what_is_no_part_is_refused_with_the_slots_there_are(make_llm, options, message):
    with pytest.raises(ValueError, match=message):
        make_llm(**options)


def test_every_slot_says_what_it_takes():
    assert list(SLOTS) == list(RIGHT)
    assert all(slot.doc.endswith(".") and slot.protocol.__doc__ for slot in SLOTS.values())


@pytest.mark.parametrize(
    ("slot", "part", "message"), WRONG, ids=[getattr(w[1], "__name__", str(w[0])) for w in WRONG]
)
def test_a_wrong_part_is_refused_at_the_door_by_name(make_llm, slot, part, message):
    with pytest.raises(PartError, match=rf"^your {slot} \(.*\) .*{message}") as raised:
        make_llm(parts={slot: part})
    assert raised.value.slot == slot


def test_a_function_is_refused_where_the_model_needs_a_window(make_llm, windowed_dir):
    from minillm_serve import LLM

    with pytest.raises(PartError, match="has no sliding window, which this model needs"):
        LLM(windowed_dir, kv_cache_memory=2**20, parts={"attention": my_attention})
    ours = LLM(windowed_dir, kv_cache_memory=2**20)
    theirs = LLM(windowed_dir, kv_cache_memory=2**20, parts={"attention": NaiveAttention})
    assert serve(ours) == serve(theirs)


class Trap:
    """Raises once it is armed."""

    def __init__(self):
        self.armed = False

    def spring(self):
        if self.armed:
            raise IndexError("boom")


def trapped(slot, trap):
    """A right part that springs a trap while it works."""

    class Pool(MyBlockPool):
        def allocate(self, count):
            trap.spring()
            return super().allocate(count)

    class Cache(MyPrefixCache):
        def match(self, token_ids, namespace):
            trap.spring()
            return super().match(token_ids, namespace)

        def publish(self, token_ids, block_table, num_written, namespace):
            trap.spring()
            return super().publish(token_ids, block_table, num_written, namespace)

    class Policy(MyScheduler):
        def schedule(self):
            trap.spring()
            return super().schedule()

    class Door(MyAdmission):
        def check(self, request):
            trap.spring()
            return super().check(request)

    def attend(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, *, scale):
        trap.spring()
        return my_attention(
            q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, scale=scale
        )

    parts = {"block_pool": Pool, "prefix_cache": Cache, "scheduler": Policy, "admission": Door}
    return {**parts, "attention": attend}[slot]


@pytest.mark.parametrize(
    ("slot", "where"),
    [("block_pool", "allocate"), ("prefix_cache", "match"), ("scheduler", "schedule")],
)
def test_a_part_that_keeps_books_takes_the_engine_with_it_and_says_so(make_llm, slot, where):
    trap = Trap()
    llm = make_llm(parts={slot: trapped(slot, trap)})
    stream = llm.stream("Hello", GREEDY)
    next(stream)
    trap.armed = True
    with pytest.raises(PartError, match=rf"your {slot} .* raised IndexError in {where}.*boom") as e:
        llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    assert isinstance(e.value.__cause__, IndexError)
    with pytest.raises(RuntimeError, match=rf"your {slot} .* raised IndexError in {where}.*boom"):
        list(stream)
    for ask in (llm.generate, llm.stream):
        with pytest.raises(PartError, match=rf"your {slot} .* has stopped this engine, for it rai"):
            ask("Hello", GREEDY)


@pytest.mark.parametrize("slot", ["attention", "admission"])
def test_a_part_without_books_fails_its_requests_and_the_engine_goes_on(make_llm, slot):
    trap = Trap()
    llm = make_llm(parts={slot: trapped(slot, trap)})
    before = serve(llm)
    trap.armed = True
    with pytest.raises(PartError, match=rf"your {slot} .* raised IndexError.*boom"):
        llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    check_idle(llm.engine.scheduler)
    trap.armed = False
    assert serve(llm) == before


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("slot", ["block_pool", "prefix_cache", "scheduler", "attention"])
def test_a_failing_part_leaves_no_other_thread_waiting(make_llm, slot, overlap):
    trap = Trap()
    llm = make_llm(parts={slot: trapped(slot, trap)}, async_scheduling=overlap)

    def ask(prompt):
        try:
            (output,) = llm.generate(prompt, GREEDY, use_tqdm=False)
        except PartError as error:
            return str(error)
        return output.outputs[0].error

    steps = []

    def arm(record):
        steps.append(record)
        trap.armed = len(steps) >= 6

    llm.engine.on_step = arm
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(ask, ["ab", "cd" * 5, "e", "f" * 9], timeout=100))
    failed = [message for message in told if message is not None]
    assert failed
    assert all(f"your {slot} (" in message and "boom" in message for message in failed)


def test_a_budget_may_refuse_a_memory_without_room_for_a_block(make_llm):
    def refuses(config, *, kv_cache_memory, block_size, dtype_bytes):
        raise ValueError(f"{kv_cache_memory} bytes are too few")

    with pytest.raises(ValueError, match=r"^10 bytes are too few"):
        make_llm(parts={"kv_budget": refuses}, kv_cache_memory=10)
    with pytest.raises(PartError, match="raised ValueError: 1000000 bytes are too few"):
        make_llm(parts={"kv_budget": refuses}, kv_cache_memory=10**6)


def test_a_stray_stop_iteration_does_not_end_a_stream_as_if_it_were_complete(make_llm):
    def stops(q, k_cache, v_cache, block_tables, seq_lens, *, scale):
        return (
            next(iter(()))
            if seq_lens.max() == 8
            else my_decode(q, k_cache, v_cache, block_tables, seq_lens, scale=scale)
        )

    llm = make_llm(parts={"attention": {"decode": stops}})
    with pytest.raises(PartError, match="raised StopIteration"):
        list(llm.stream("Hello", GREEDY))


def test_a_fault_of_ours_is_no_part_s_fault(make_llm):
    llm = make_llm(parts={"attention": my_attention})
    llm.engine.executor.submit = lambda batch: 1 / 0
    with pytest.raises(ZeroDivisionError):
        llm.generate("Hello", GREEDY, use_tqdm=False)
    check_idle(llm.engine.scheduler)


def test_books_that_contradict_themselves_are_the_fault_of_the_part_that_keeps_them(make_llm):
    class Hoards(MyScheduler):
        armed = False

        def schedule(self):
            batch = super().schedule()
            if Hoards.armed:
                self.blocks.pool.allocate(1)
            return batch

    llm = make_llm(parts={"scheduler": Hoards})
    Hoards.armed = True
    with pytest.raises(PartError, match=r"your scheduler .*Hoards\) broke an invariant: .*referen"):
        llm.generate("Hello", GREEDY, use_tqdm=False)
    with pytest.raises(PartError, match="has stopped this engine"):
        llm.generate("Hello", GREEDY, use_tqdm=False)


def test_a_scheduler_that_stands_still_is_named(make_llm):
    class Sleeps(MyScheduler):
        asleep = False

        def schedule(self):
            batch = super().schedule()
            return type(batch)(()) if Sleeps.asleep else batch

    llm = make_llm(parts={"scheduler": Sleeps})
    Sleeps.asleep = True
    with pytest.raises(PartError, match=r"your scheduler .*Sleeps\) .*1 sequences are unfinished"):
        llm.generate("Hello", GREEDY, use_tqdm=False)


def test_an_attention_of_the_wrong_shape_is_named_while_it_runs(make_llm):
    def shrinks(q, k_cache, v_cache, block_tables, seq_lens, *, scale):
        out = my_decode(q, k_cache, v_cache, block_tables, seq_lens, scale=scale)
        return out if seq_lens.max() < 36 else out[:1, :1]

    llm = make_llm(parts={"attention": {"decode": shrinks}})
    with pytest.raises(PartError, match=r"returned shape \[1, 1, 16\] .*expected q's \[5, 4, 16\]"):
        llm.generate(PROMPTS, GREEDY, use_tqdm=False)


def test_a_door_may_refuse_for_reasons_of_its_own(make_llm):
    class Shuts(MyAdmission):
        def check(self, request):
            super().check(request)
            if len(request.prompt_token_ids) > 20:
                raise RequestRefused("too much to read")

    llm = make_llm(parts={"admission": Shuts})
    with pytest.raises(RequestRefused, match="too much to read"):
        llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    check_idle(llm.engine.scheduler)
    assert serve(llm, ["Hello"]) == serve(make_llm(), ["Hello"])


def test_a_request_that_is_refused_late_leaves_nothing_of_its_call_behind(make_llm):
    class Tires(MyAdmission):
        asked = 0

        def check(self, request):
            super().check(request)
            Tires.asked += 1
            if Tires.asked > 7:
                raise RequestRefused("enough for today")

    llm = make_llm(parts={"admission": Tires})
    Tires.asked = 0
    with pytest.raises(RequestRefused, match="enough"):  # asked of 5, and again of the third
        llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    check_idle(llm.engine.scheduler)
    assert llm.engine.metrics == {}


def test_a_door_s_verdicts_hold_and_so_do_limits_that_were_set(make_llm):
    class Wary(MyAdmission):
        inside = 0

        def admit(self, request, load):
            if self.inside >= 3:
                return Refuse(retry_after=4.0, why="three are inside")
            self.inside += 1
            return Accept()

        def leave(self, request_id):
            self.inside -= 1

    llm = make_llm(parts={"admission": Wary})
    for _ in range(2):  # the first call has left nobody inside
        with pytest.raises(Overloaded, match=r"since three are inside: .* 4 s"):
            llm.generate(PROMPTS[:4], GREEDY, use_tqdm=False)
        check_idle(llm.engine.scheduler)
    assert serve(llm, ["Hello"]) == serve(make_llm(), ["Hello"])
    both = make_llm(parts={"admission": Wary}, max_num_waiting=2)
    with pytest.raises(Overloaded, match=r"max_num_waiting=2"):
        both.generate(PROMPTS[:3], GREEDY, use_tqdm=False)


def test_a_door_that_fails_when_somebody_leaves_lets_nobody_in_and_stops_nobody(make_llm):
    class Slams(MyAdmission):
        def leave(self, request_id):
            if request_id != "one token":
                raise KeyError(request_id)

    llm = make_llm(parts={"admission": Slams})
    stream = llm.stream("Hello", GREEDY)
    served = serve(make_llm(), PROMPTS[:1])
    assert serve(llm, PROMPTS[:1]) == served
    with pytest.raises(PartError, match=r"your admission .*Slams\) raised KeyError in leave"):
        llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    assert "".join(stream)
    check_idle(llm.engine.scheduler)


def test_a_wrong_call_of_a_right_pool_is_not_the_pool_s_fault(make_llm):
    llm = make_llm(parts={"block_pool": MyBlockPool})
    with pytest.raises(InvariantViolation):
        llm.engine.scheduler.blocks.pool.release(0)


def test_a_part_s_error_survives_the_way_between_processes():
    error = PartError("block_pool", "__main__.Mine", "raised IndexError: x")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.slot) == (str(error), "block_pool")
    assert str(error) == "your block_pool (__main__.Mine) raised IndexError: x"


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_every_backend_of_ours_passes_the_comparison_at_the_door(name):
    backend = BACKENDS[name]
    if "cpu" not in backend.capabilities.devices:
        pytest.skip("not on a CPU")
    assert find_difference(backend(), Needs(CPU, torch.float32, window=True)) is None


STEP = ([20, 9, 41, 5, 17], [1, 3, 40, 1, 17])
ONLY_DECODES, ONLY_SLICES = ([4, 9, 1], [1, 1, 1]), ([9, 4], [3, 4])


@pytest.mark.parametrize("step", [STEP, ONLY_DECODES, ONLY_SLICES])
@pytest.mark.parametrize(
    "backend",
    [FunctionAttention(my_attention), DecodeFunctionAttention(my_decode, TorchAttention())],
    ids=["function", "decode"],
)
def test_a_function_as_a_backend_equals_dense_attention(backend, step):
    problem = make_problem(*step).to(torch.float32)
    got = backend.run(
        problem.q, problem.k_cache, problem.v_cache, problem.metadata,
        backend.plan(problem.metadata), scale=0.25, window=None,
    )  # fmt: skip
    torch.testing.assert_close(got.double(), solve(problem, scale=0.25), rtol=2e-6, atol=2e-6)
