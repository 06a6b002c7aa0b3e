"""The head: one forward for training and serving, its file, and for whom it is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from minillm_serve.models.codes import find_codes
from minillm_serve.models.draft_file import (
    DraftFile,
    expand_codes,
    read_draft_file,
    round_to_codes,
    shape_of,
    write_draft_file,
)
from minillm_serve.models.draft_head import FILE, DraftHead, find_draft_head, load_draft_head
from minillm_serve.models.transformer import Transformer
from tests.distill.tiny import tiny_head, tiny_target
from tests.models.tiny import DenseAttend


def as_file(head: DraftHead, target: Transformer) -> DraftFile:
    return DraftFile(
        target="tiny",
        shape=shape_of(target.config),
        vocabulary=head.vocabulary,
        matrices={name: linear.weight for name, linear in head.matrices().items()},
        norms={name: norm.weight for name, norm in head.norms().items()},
        recipe={"seed": 1},
    )


def features(head: DraftHead, target: Transformer, rows: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(5)
    dtype = target.embedding.weight.dtype
    before = torch.randn(rows, head.config.hidden_size, generator=draw, dtype=dtype)
    embeddings = target.embedding(torch.arange(rows))
    return head(embeddings, before, torch.arange(rows), DenseAttend(head.config))


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_serving_computes_what_training_computes(rows: int, tmp_path: Path) -> None:
    target = tiny_target(torch.float32)
    write_draft_file(tmp_path / FILE, as_file(tiny_head(target), target))
    head = load_draft_head(tmp_path, target)
    with torch.inference_mode():
        served = features(head, target, rows)
        logits = head.logits(served)
    plain = tiny_head(target)  # not packed, with gradients: plain torch
    with torch.no_grad():
        for name, linear in plain.matrices().items():
            linear.weight.copy_(head.matrices()[name].weight)
    learnt = features(plain, target, rows)
    assert learnt.requires_grad
    torch.testing.assert_close(served, learnt.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits, plain.logits(learnt).detach(), rtol=1e-4, atol=1e-3)


def test_draft_logits_are_the_targets_of_the_same_rows() -> None:
    target = tiny_target()
    head = tiny_head(target)
    rows = torch.randn(4, target.config.hidden_size, dtype=torch.float64)
    expected = target.logits(rows)[:, head.vocabulary]
    torch.testing.assert_close(head.logits(rows), expected, rtol=0, atol=1e-12)


def test_a_file_is_read_as_it_was_rounded(tmp_path: Path) -> None:
    target = tiny_target(torch.float32)
    trained = tiny_head(target)
    write_draft_file(tmp_path / FILE, as_file(trained, target))
    first = load_draft_head(tmp_path / FILE, target)
    write_draft_file(tmp_path / "again" / FILE, as_file(first, target))
    second = load_draft_head(tmp_path / "again", target)
    for name, linear in first.matrices().items():
        assert torch.equal(linear.weight, second.matrices()[name].weight)
        step = trained.matrices()[name].weight.abs().max() / 127
        assert (linear.weight - trained.matrices()[name].weight).abs().max() < step
    for name, norm in first.norms().items():
        assert torch.equal(norm.weight, trained.norms()[name].weight)
    assert torch.equal(second.vocabulary, trained.vocabulary)
    assert read_draft_file(tmp_path / "again" / FILE).recipe == {"seed": 1}


def test_codes_are_found_again_in_every_matrix(tmp_path: Path) -> None:
    target = tiny_target(torch.float32)
    write_draft_file(tmp_path / FILE, as_file(tiny_head(target), target))
    head = load_draft_head(tmp_path, target)
    for linear in head.matrices().values():
        assert linear.coded is not None
        assert torch.equal(linear.coded.expand(), linear.weight)
    plain = sum(linear.weight.nbytes for linear in head.matrices().values())
    assert head.bytes_read - head._rows.weight.nbytes < plain / 2


@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1e-3, 1.0, 100.0])
def test_a_step_is_found_again_whatever_its_size(scale: float) -> None:
    weight = scale * torch.randn(12, 64, generator=torch.Generator().manual_seed(3))
    weight[2, 32:] = 0
    values = expand_codes(*round_to_codes(weight))
    assert find_codes(values) is not None
    assert torch.equal(expand_codes(*round_to_codes(values)), values)


def test_a_rounded_matrix_is_near() -> None:
    weight = torch.randn(16, 96, generator=torch.Generator().manual_seed(4))
    codes, steps = round_to_codes(weight)
    error = (expand_codes(codes, steps) - weight).reshape(16, 3, 32).abs().amax(2)
    assert (error <= 0.56 * steps.float()).all()  # half a step, and the rounding of the step


def test_the_head_of_another_target_is_refused_by_name(tmp_path: Path) -> None:
    target = tiny_target()
    write_draft_file(tmp_path / FILE, as_file(tiny_head(target), target))
    wider = tiny_target(hidden_size=96)
    with pytest.raises(ValueError, match="hidden_size is 64; this model's is 96"):
        load_draft_head(tmp_path, wider)
    with pytest.raises(ValueError, match="num_kv_heads is 2; this model's is 1"):
        load_draft_head(tmp_path, tiny_target(num_key_value_heads=1))
    with pytest.raises(ValueError, match="vocab_size is 97; this model's is 98"):
        load_draft_head(tmp_path, tiny_target(vocab_size=98))


def test_what_is_no_head_is_refused(tmp_path: Path) -> None:
    target = tiny_target()
    with pytest.raises(ValueError, match="no draft head"):
        load_draft_head(tmp_path / "nowhere", target)
    (tmp_path / FILE).write_bytes(b"not a safetensors file")
    with pytest.raises(ValueError, match="cannot be read"):
        load_draft_head(tmp_path, target)


def test_a_target_with_biases_and_head_norms_gets_a_plain_layer() -> None:
    target = tiny_target()
    config = replace(target.config, qkv_bias=True, qk_norm=True)
    target.config = config
    head = DraftHead(target, torch.arange(5))
    assert head.layer.attention.qkv_proj.bias is None
    assert head.layer.attention.qk_norm is None
    assert (head.config.num_layers, head.config.sliding_windows) == (1, (None,))


def test_other_models_have_no_head_that_comes_with_them(tmp_path: Path) -> None:
    assert find_draft_head(tmp_path) is None
    assert find_draft_head("somebody/smollm2-135m") is None
