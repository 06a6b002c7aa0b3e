"""Chapter 07 on models: counters and tokens, never the clock. A tiny one, in float64, or the real.

Where it is tiny, whatever is replayed must be what the engine does, to the step.
"""

from pathlib import Path
from typing import Any

import pytest

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import AdaptiveLengths, SpecStats, StepCosts
from minillm_serve.core.speculation import Curve
from minillm_serve.course.chapter07 import costs, exchange, real, texts, watch
from minillm_serve.course.chapter07.replay import Tally, replay
from minillm_serve.course.techniques import TECHNIQUES
from minillm_serve.models.layers import Linear
from minillm_serve.runtime.spec.drafter import Drafter
from minillm_serve.runtime.spec.ngram import NgramDrafter
from tests.llm.tiny import save_tiny
from tests.models.tiny import prompt

PROMPTS = [prompt(5, seed=1), prompt(9, seed=2) * 2, [7, 8, 9] * 4]
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    directory: Path = save_tiny(tmp_path_factory.mktemp("tiny"))
    drafts = {"method": "early_exit", "draft_layers": 2, "adaptive": False}
    return LLM(
        directory,
        device="cpu",
        dtype="float64",
        block_size=4,
        num_blocks=200,
        max_model_len=128,
        prefix_cache=None,
        speculative_config=drafts,
        debug_invariants=True,
    )


def two_of_them(llm: LLM) -> dict[str, Drafter]:
    return {"n-gram": NgramDrafter(3, 1), "early exit": exchange.early_exit(llm, 2)}


@pytest.fixture(scope="module")
def watched(llm: LLM) -> list[watch.Answer]:
    panel = {name: (who, 6) for name, who in two_of_them(llm).items()}
    return watch.watch(llm, PROMPTS, panel, max_tokens=24)


def test_watched_answers_are_those_without_drafts(llm: LLM, watched: list[watch.Answer]) -> None:
    plain = real.run(llm, PROMPTS, params=SamplingParams(temperature=0, max_tokens=24))
    assert [answer.token_ids for answer in watched] == plain.token_ids
    assert [answer.prompt for answer in watched] == PROMPTS


@pytest.mark.parametrize("name", ["n-gram", "early exit"])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_a_replay_takes_the_steps_that_the_engine_takes(
    llm: LLM, watched: list[watch.Answer], name: str, k: int
) -> None:
    for answer in watched:
        params = SamplingParams(temperature=0, max_tokens=24)
        run = real.run(llm, [answer.prompt], two_of_them(llm)[name], k, params=params)
        steps = replay(answer.token_ids, answer.guesses[name], k)
        tally = Tally.of(steps)
        assert run.token_ids == [answer.token_ids]
        assert (run.steps, run.tokens) == (tally.steps, tally.tokens)
        assert run.stats.num_draft_tokens == tally.drafts
        assert run.stats.num_accepted_tokens == tally.kept


def test_some_of_these_guesses_are_right_and_some_are_not(watched: list[watch.Answer]) -> None:
    for name in ("n-gram", "early exit"):
        tallies = [Tally.of(replay(a.token_ids, a.guesses[name], 4)) for a in watched]
        assert 0 < sum(t.kept for t in tallies) < sum(t.drafts for t in tallies)


def test_exchanging_drafters_leaves_the_engine_as_it_was(llm: LLM) -> None:
    executor, scheduler = exchange.executor_of(llm), llm.engine.scheduler
    before = executor.drafter, scheduler.speculation

    def fail_meanwhile() -> None:
        with exchange.drafting(llm, NgramDrafter(), 3) as counted:
            assert executor.drafter is not before[0]
            assert counted is scheduler.speculation
            raise RuntimeError("somebody stopped it")

    with pytest.raises(RuntimeError, match="somebody"):
        fail_meanwhile()
    assert (executor.drafter, scheduler.speculation) == before
    with exchange.drafting(llm, None) as nobody:
        assert nobody is executor.drafter is scheduler.speculation is None


def test_a_run_counts_decoding_steps_only(llm: LLM) -> None:
    plain = real.run(llm, PROMPTS, params=GREEDY)
    assert plain.steps == 23
    assert plain.tokens == 23 * len(PROMPTS)
    assert plain.stats == SpecStats()
    assert plain.seconds > 0
    assert plain.drafts_each == 0
    several = real.run(
        llm, PROMPTS[:1], params=SamplingParams(n=3, temperature=1, max_tokens=5, ignore_eos=True)
    )
    assert [len(answer) for answer in several.token_ids] == [5, 5, 5]


def test_drafts_each_counts_those_who_got_none(llm: LLM) -> None:
    nothing = Curve([(1, 1.0), (2, 9.0)])  # a second row costs eight steps: no drafts ever
    dear = AdaptiveLengths(4, StepCosts(Curve([(1, 1.0)]), nothing))
    run = real.run(llm, PROMPTS[:1], exchange.early_exit(llm, 2), dear, params=GREEDY)
    assert run.drafts_each == 0
    four = real.run(llm, PROMPTS[:1], exchange.early_exit(llm, 2), 4, params=GREEDY)
    assert 2 < four.drafts_each <= 4


def test_alpha_leaves_out_what_stands_behind_a_wrong_draft() -> None:
    stats = SpecStats(10, 20, 9, (6, 3))
    assert real.alpha_of(stats) == pytest.approx(9 / (10 + 6))
    assert real.alpha_of(SpecStats()) == 0


def test_the_steps_that_are_looked_at_give_back_what_drafts_did_not_need_b56_b57(llm: LLM) -> None:
    seen = real.look(llm, PROMPTS[2], NgramDrafter(3, 1), 6, max_tokens=24)
    for step in seen[1:]:
        item = step.item
        assert item.num_tokens == 1 + item.num_drafts
        assert len(item.draft_token_ids) == item.num_drafts
        assert step.new_token_ids[:-1] == item.draft_token_ids[: step.num_accepted]
    going = seen[1:-1]  # with the last step the sequence leaves
    assert all(s.num_computed == s.item.start + 1 + s.num_accepted for s in going)
    assert all(s.num_blocks >= -(-s.item.end // 4) for s in going)
    assert all(-(-s.num_computed // 4) <= s.num_blocks_after for s in going)
    assert all(s.num_blocks_after <= s.num_computed // 4 + 1 for s in going)
    assert any(s.num_blocks_after < s.num_blocks for s in going)


def test_every_number_of_rows_is_timed_and_they_are_all_refused(llm: LLM) -> None:
    times = costs.time_rows(llm, PROMPTS[0], most=6, rounds=2, token=96)
    assert list(times) == [1, 2, 3, 4, 5, 6]
    assert min(times.values()) > 0
    assert llm.engine.on_step is None


def test_costs_are_measured_for_whom_they_are_asked(llm: LLM) -> None:
    free = costs.measured(llm, NgramDrafter(), seconds=0.01)
    half = costs.measured(llm, exchange.early_exit(llm, 2), seconds=0.01)
    assert free.plain(1) > 0
    assert half.of_pass(0)(1) > free.of_pass(0)(1)  # layers, and a look into a dictionary


def test_weights_that_are_read_are_those_of_all_matrices(llm: LLM) -> None:
    model = exchange.executor_of(llm).model
    linears = [m for m in model.modules() if isinstance(m, Linear)]
    assert costs.weights_read(llm) == 8 * sum(m.weight.numel() for m in linears)


def test_answers_are_counted_and_the_rare_ones_together() -> None:
    one, other = [[1, 2]] * 8 + [[3, 4]] * 2, [[1, 2]] * 7 + [[3, 4], [5, 6], [5, 7]]
    first, second, often = real.categories(one, other, least=3)
    assert often == [(1, 2), (3, 4)]
    assert (first, second) == ([8, 2, 0], [7, 1, 2])
    assert real.categories(one, one, least=1) == ([8, 2], [8, 2], [(1, 2), (3, 4)])
    assert real.in_common([1, 2, 3], [1, 2, 4, 5]) == 2


def test_the_row_speculates_and_those_before_it_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Stop(Exception):
        """Nothing need be served to see what was asked for."""

    def noted(**given: object) -> None:
        asked.clear()
        asked.update(given)
        raise Stop

    monkeypatch.setattr("minillm_serve.course.techniques.LLM", noted)
    for name in list(TECHNIQUES)[1:]:
        with pytest.raises(Stop):
            TECHNIQUES[name].serve([])
        assert asked.get("speculative_config") == ("ngram" if name == "07_speculation" else None)


@pytest.mark.model
def test_prompts_are_short_and_pieces_are_the_text() -> None:
    llm = LLM("smollm2-135m", device="cpu", dtype="float32", num_blocks=16, max_model_len=256)
    asked = texts.prompts(llm)
    assert list(asked) == list(texts.KINDS)
    assert all(len(one) < 150 for kind in asked.values() for one in kind)
    ids = asked["code and format"][0]
    assert "".join(texts.pieces_of(llm, ids)) == llm.tokenizer.decode(ids)
