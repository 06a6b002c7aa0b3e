"""Presets against what their publishers state."""

import subprocess
import sys

import pytest

from minillm_serve.sim import GB, HARDWARE, LATENT_MODELS, MODELS, GiB, Hardware, ModelShape


@pytest.mark.parametrize("shape", MODELS.values(), ids=lambda s: s.name)
def test_a_shape_counts_exactly_the_parameters_its_publisher_states(shape: ModelShape):
    assert shape.num_parameters == shape.published_parameters


@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("SmolLM2-135M", 22.5),
        ("Llama-2-7B", 512),
        ("Llama-3-8B", 128),
        ("Llama-3-70B", 320),
        ("Mistral-7B", 128),
        ("Qwen2.5-7B", 56),
        ("Qwen3-0.6B", 112),
        ("Qwen3-8B", 144),
    ],
)
def test_bytes_per_token_in_fp16(name: str, kib: float):
    assert MODELS[name].kv_bytes_per_token(2) == kib * 1024


def test_mla_costs_what_the_deepseek_v2_paper_says():
    """'equal to GQA with only 2.25 groups' (DeepSeek-V2, 2024, table 1)."""
    for shape in LATENT_MODELS.values():
        assert shape.equivalent_kv_heads == 2.25
        assert shape.kv_bytes_per_token(2) == shape.num_layers * (512 + 64) * 2


@pytest.mark.parametrize("card", HARDWARE.values(), ids=lambda c: c.name)
def test_a_card_shows_a_program_a_little_less_than_its_box_says_in_gib(card: Hardware):
    assert 0.9 * card.advertised_gb * GiB < card.memory_bytes < card.advertised_gb * GiB


def test_the_cards_of_the_course_are_all_there():
    assert list(HARDWARE) == ["L4", "RTX 4090", "A100 40GB", "A100 80GB", "H100 SXM", "H200 SXM"]
    balance = [card.flops_fp16_dense / card.bandwidth_bytes_s for card in HARDWARE.values()]
    assert min(balance) > 100  # FLOP per byte: all are starved of bytes while decoding


def test_hopper_flops_are_dense_not_sparse():
    for name in ("H100 SXM", "H200 SXM"):
        assert HARDWARE[name].flops_fp16_dense == pytest.approx(1979e12 / 2, rel=1e-3)
    assert HARDWARE["A100 40GB"].bandwidth_bytes_s == 1555 * GB


@pytest.mark.parametrize("thing", [*MODELS.values(), *HARDWARE.values(), *LATENT_MODELS.values()])
def test_every_preset_names_its_source_and_year(thing: object):
    assert thing.source  # type: ignore[attr-defined]
    assert 2020 <= thing.year <= 2026  # type: ignore[attr-defined]


def test_the_simulator_is_imported_without_torch():
    code = "import sys, minillm_serve.sim; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
