"""What following a block table costs is measured on one and the same problem."""

import json
from pathlib import Path

import pytest
import torch

from minillm_serve.course.chapter02 import indirection, knob
from minillm_serve.course.chapter02.indirection import (
    calls_of,
    dense_attention,
    make_tokens,
    measure,
    pages,
    ratios,
)


@pytest.mark.parametrize("backend", ["naive", "torch", "cpu"])
@pytest.mark.parametrize("block_size", [1, 3, 16, 256])
def test_every_layout_gives_the_result_of_dense_attention(backend: str, block_size: int) -> None:
    tokens = make_tokens(3, 1, 40)
    right = dense_attention(tokens)
    for call in calls_of(backend, tokens, [block_size]).values():
        torch.testing.assert_close(call(), right, rtol=1e-5, atol=1e-5)


def test_pages_hold_every_token_at_its_slot() -> None:
    tokens = make_tokens(2, 5, 11)
    tables, k_cache, _ = pages(tokens, 4)
    assert sorted(tables.flatten().tolist()) == list(range(6))
    for position in range(11):
        block = int(tables[1, position // 4])
        assert torch.equal(k_cache[block, :, position % 4], tokens.k[1, :, position])


def test_pages_in_order_lie_one_behind_the_other() -> None:
    tables, *_ = pages(make_tokens(2, 5, 11), 4, shuffled=False)
    assert tables.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_measurement_has_a_value_for_each_layout_and_round() -> None:
    times = measure(make_tokens(2, 3, 9), block_sizes=(2, 4), rounds=2, calls=1)
    assert set(times) == {"cpu", "torch"}
    for layouts in times.values():
        assert list(layouts) == ["contiguous", "2", "4"]
        assert all(len(values) == 2 and min(values) > 0 for values in layouts.values())
    assert knob.draw_indirection(times).axes


def test_a_layout_that_changes_the_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def astray(*_: object, **__: object) -> object:
        return lambda: torch.zeros(2, 9, 64)

    monkeypatch.setattr(indirection, "_paged_call", astray)
    with pytest.raises(AssertionError):
        measure(make_tokens(2, 3, 9), backends=["cpu"], block_sizes=(2,), rounds=1, calls=1)


def test_ratios_compare_the_fastest_rounds() -> None:
    times = {"cpu": {"contiguous": [2.0, 9.0], "16": [3.0, 2.5], "1": [8.0, 10.0]}}
    assert ratios(times) == {"cpu": {16: 1.25, 1: 4.0}}


def test_the_committed_measurement_has_every_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2] / "notebooks")
    record = indirection.load()
    assert record["stamp"]["hardware"]
    for found in ratios(record["values"]).values():
        assert tuple(found) == indirection.BLOCK_SIZES


def test_a_missing_measurement_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="minillm-serve bench indirection --output"):
        indirection.load(tmp_path / "nothing.json")
    (tmp_path / "some.json").write_text(json.dumps({"values": {}}))
    assert indirection.load(tmp_path / "some.json") == {"values": {}}
