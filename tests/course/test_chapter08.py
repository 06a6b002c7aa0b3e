"""Chapter 08's experiment, record and little scenes."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from minillm_serve.course.chapter08 import lattice, record, shared, tradeoff
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.quality.studies import KV_BITS, WEIGHT_BITS
from minillm_serve.runtime.kv_quantizer import QUANTIZERS, Int8Quantizer
from tests.house.tree import ROOT
from tests.models.tiny import random_model


@pytest.fixture(scope="module")
def measured() -> record.Record:
    return record.Record.load(ROOT / "notebooks")


@pytest.fixture(scope="module")
def opened(measured) -> FormulaExperiment:
    experiment = tradeoff.BitsQualityUsers(measured).experiment()
    assert experiment.panel is not None
    experiment.panel.give_up()
    return experiment


def test_the_record_has_every_pair_of_bits_layer_and_head(measured) -> None:
    for kv in KV_BITS:
        for weights in WEIGHT_BITS:
            assert measured.kl(kv, weights) >= 0
    with pytest.raises(ValueError, match="kv_bits=7"):
        measured.kl(7, 0)
    assert len(measured.studies["layers"]) == 30
    assert len(measured.studies["heads"]) == 90
    assert measured.kl(8, 0) < measured.kl(4, 0)
    assert 0 < measured.changed(0.01) < measured.changed(0.5) < 1


def test_a_record_that_is_not_there_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="minillm-serve quality --studies"):
        record.Record.load(tmp_path)


def test_users_are_what_the_formula_says() -> None:
    """Half the bits are not quite twice the users: scales take their share."""
    for system in tradeoff.SYSTEMS.values():
        room = system.memory - system.model.num_parameters * 2
        by_hand = room / (system.model.kv_bytes_per_token(2) * 1024)
        assert system.users(0, 0, 1024) == pytest.approx(by_hand)
        doubled = system.users(8, 0, 1024) / system.users(0, 0, 1024)
        assert doubled == pytest.approx(16 / (8 + 32 / system.model.head_dim))
    small = tradeoff.System(tradeoff.SYSTEMS["SmolLM2-135M in 1 GiB"].model, 1000)
    assert small.users(0, 0, 1024) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"kv": 0, "weights": 0},
        {"kv": 8, "weights": 4, "context": 256},
        {"kv": 3, "context": 32768, "system": "Llama-3-8B on an A100 40GB"},
        {"kv": 4, "weights": 8, "system": "SmolLM2-135M in 1 GiB"},
    ],
    ids=str,
)
def test_the_experiment_is_drawn_at_every_corner(opened, change) -> None:
    opened.reset()
    opened.set(**change)
    assert opened.error is None
    said = opened.describe()
    assert "users of" in said
    assert ("times as many" in said) == (change != {"kv": 0, "weights": 0})


def test_every_symbol_governs_a_part_of_the_drawing(opened) -> None:
    opened.set(kv=8, weights=8)
    root = ElementTree.fromstring(opened.picture.svg)
    marked = {name for e in root.iter() for name in e.get("data-sym", "").split()}
    assert {"M", "W", "weights", "n", "kv", "context"} <= marked


def test_the_question_is_answered_by_the_users_that_it_tells(opened) -> None:
    system = next(iter(tradeoff.SYSTEMS.values()))
    assert opened.predict.answer == "the weights"
    assert system.users(0, 8, 4096) > system.users(8, 0, 4096)


@pytest.mark.parametrize("name", ["tasks", "layers", "heads", "algorithms"])
def test_the_record_is_drawn(measured, name) -> None:
    drawn = measured.rows if name == "tasks" else measured.studies
    figure = getattr(record, f"draw_{name}")(drawn)
    assert all(ax.get_title(loc="left") for ax in figure.axes if ax.get_xlabel())


def test_a_code_stands_for_so_many_values() -> None:
    assert len(lattice.levels(torch.int8)) == 256
    fp8 = lattice.levels(torch.float8_e4m3fn)
    assert len(fp8) == 253  # two of 256 are NaN, two are zero
    assert fp8[-1] == 448
    assert set(QUANTIZERS) == {torch.int8, torch.float8_e4m3fn}


def test_b127_a_copy_without_its_scales_is_another_number() -> None:
    from minillm_serve.models.config import ModelConfig

    config = ModelConfig.from_hf(random_model("llama").config.to_dict())
    assert shared.copy_block(config, scales_too=True).error == 0
    forgotten = shared.copy_block(config, scales_too=False)
    assert forgotten.error > 1
    assert torch.equal(forgotten.original, shared.copy_block(config, scales_too=True).copy)


def test_rows_of_keys_are_drawn_on_both_rulers() -> None:
    row = torch.randn(64, generator=torch.Generator().manual_seed(0))
    figure = lattice.draw_codes(row)
    titles = [ax.get_title(loc="left") for ax in figure.axes[:2]]
    assert titles == ["int8: even", "fp8 e4m3: fine near 0, coarse far off"]
    keys = row.expand(9, 2, 64)
    assert lattice.draw_spread(keys, keys, layer=3).axes[0].get_ylabel().endswith("layer 3, head 0")
    assert Int8Quantizer.dtype == torch.int8


def test_the_records_are_what_the_command_writes() -> None:
    for path in (record.ROWS, record.STUDIES):
        written = json.loads((ROOT / path).read_text("utf-8"))
        assert written["stamp"]["model"] == "smollm2-135m"
