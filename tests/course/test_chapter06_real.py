"""Chapter 06 on the real model: counters, tables and tokens, never the clock."""

import math
from typing import Any

import pytest

from minillm_serve import LLM
from minillm_serve.core import HashPrefixCache, Namespace
from minillm_serve.course.chapter06 import desk, pictures, real
from minillm_serve.course.techniques import TECHNIQUES
from minillm_serve.course.trace import User

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def engines() -> dict[str | None, LLM]:
    room = {"device": "cpu", "dtype": "float32", "max_model_len": 512, "num_blocks": 96}
    return {cache: LLM("smollm2-135m", **room, prefix_cache=cache) for cache in (None, "radix")}


@pytest.fixture(scope="module")
def crowds(engines: dict[str | None, LLM]) -> dict[str | None, real.Crowd]:
    prompts = real.strangers(3, 40, 33)
    return {name: real.serve(llm, prompts, max_tokens=3) for name, llm in engines.items()}


def test_the_desk_s_prompts_share_the_rules_and_nothing_after_them(
    engines: dict[str | None, LLM],
) -> None:
    prompts = desk.desk_prompts(engines[None])
    shared = real.common_prefix(prompts)
    assert len(prompts) == len(desk.QUESTIONS)
    assert all(0 < len(prompt) - shared < 30 for prompt in prompts)
    assert desk.RULES.split()[-1].strip(".") in engines[None].tokenizer.decode(prompts[0][:shared])


def test_a_crowd_reads_the_same_and_holds_what_the_formula_says(
    crowds: dict[str | None, real.Crowd],
) -> None:
    alone, shared = crowds[None], crowds["radix"]
    assert alone.token_ids == shared.token_ids
    assert (alone.cached, shared.cached) == ([0, 0, 0], [0, 32, 32])
    assert alone.lengths == shared.lengths == [41, 41, 41]
    assert alone.blocks == real.blocks_held(alone.lengths, S=0, P=16) == 9
    assert shared.blocks == real.blocks_held(shared.lengths, S=33, P=16) == 5
    assert shared.hit_rate == pytest.approx(64 / 120)
    assert not math.isnan(shared.decode_step)


def test_samples_share_whole_blocks_and_part_at_the_partial_one(
    engines: dict[str | None, LLM],
) -> None:
    llm = engines["radix"]
    first, second, *_ = real.sample(llm, real.strangers(1, 40, 0)[0], n=3, max_tokens=4)
    assert list(first.tables) == [0]
    heads = {tuple(table[:2]) for table in second.tables.values()}
    assert heads == {tuple(first.tables[0][:2])}
    last = [table[2] for table in second.tables.values()]
    assert len(set(last)) == 3
    assert {second.references[block] for block in last} == {1}
    assert {second.references[block] for block in first.tables[0][:2]} == {4}  # and the index


def test_a_talk_finds_everything_that_was_said_before(engines: dict[str | None, LLM]) -> None:
    first, second = real.talk(engines["radix"], ["May I eat here?", "Why?"], max_tokens=4)
    assert first.cached == 0
    assert first.prompt - 16 <= second.cached <= second.prompt - 1


def test_a_guess_is_found_unless_the_salts_differ(engines: dict[str | None, LLM]) -> None:
    llm = engines["radix"]
    letters = [desk.letter(llm, name) for name in desk.NAMES[:2]]
    llm.reset_prefix_cache()
    real.probe(llm, letters[1:], "one")
    assert [cached for cached, _ in real.probe(llm, letters, "other")] == [0, 0]
    wrong, right = (cached for cached, _ in real.probe(llm, letters, "one"))
    assert wrong < 16 <= len(letters[1]) - 16 <= right


def test_keys_of_a_block_depend_on_what_is_before_it_from_layer_1_on(
    engines: dict[str | None, LLM],
) -> None:
    llm, middle = engines["radix"], real.strangers(1, 17, 0, seed=1)[0]
    prompts = [real.strangers(1, 16, 0, seed=seed)[0] + middle for seed in (2, 3)]
    llm.generate(prompts, real.greedy(1), use_tqdm=False)
    one, other = (real.keys_of(llm, prompt, 1) for prompt in prompts)
    far = [float((a - b).norm() / a.norm()) for a, b in zip(one, other, strict=True)]
    assert far[0] < 1e-4
    assert min(far[1:]) > 0.01


def test_the_bookkeeping_of_strangers_leaves_nothing_behind() -> None:
    assert real.bookkeeping("hash", real.strangers(3, 64, 0), P=16) > 0
    cache = HashPrefixCache(16)
    prompts = real.strangers(2, 48, 16)
    cache.publish(prompts[0], [0, 1, 2], 48, Namespace())
    assert cache.match(prompts[1], Namespace()) == [0]


def test_the_scoreboard_s_row_has_a_cache_and_so_has_the_complete_engine_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {}

    class Stop(Exception):
        """Nothing need be served to see what was asked for."""

    def noted(**given: object) -> None:
        asked.update(given)
        raise Stop

    monkeypatch.setattr("minillm_serve.course.techniques.LLM", noted)
    for name in list(TECHNIQUES)[1:]:
        with pytest.raises(Stop):
            TECHNIQUES[name].serve([])
        assert asked["prefix_cache"] == ("hash" if name in ("06_prefix", "10_http") else None)


def test_the_scoreboard_s_users_find_nothing_not_even_of_the_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = []

    def kept(**given: Any) -> LLM:
        built.append(LLM(**given))
        return built[-1]

    monkeypatch.setattr("minillm_serve.course.techniques.LLM", kept)
    users = [User(0.0, tuple(prompt), 2) for prompt in real.strangers(2, 40, 0)]
    TECHNIQUES["06_prefix"].serve(users)
    assert built[0].prefix_stats.queries == 80
    assert built[0].prefix_stats.hits == 0


def test_the_pictures_say_what_they_show(crowds: dict[str | None, real.Crowd]) -> None:
    tokens = tuple(range(20))
    parting = (*tokens[:8], *range(100, 108))
    before, after = pictures.draw_split([tokens], [parting], 4).axes
    assert before.get_title(loc="left") == "5 blocks, in 1 node"
    assert after.get_title(loc="left") == "7 blocks, in 3 nodes"
    gain = pictures.draw_gain({0.0: 1.1, 0.5: 0.5}, 1.0).axes[0]
    assert gain.get_title(loc="left").startswith("At best 2.0 times")
    reads = pictures.draw_reads(8, 100, [0, 0.5, 1], 1).axes[0]
    assert list(reads.lines[1].get_ydata()) == [800, 50 + 400, 100]
    waits = pictures.draw_ttft({"none": crowds[None], "radix": crowds["radix"]})
    assert len(waits.axes) == 2
