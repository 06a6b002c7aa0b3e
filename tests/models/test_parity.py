"""The one transformer equals transformers' four, feature by feature, in float32."""

from pathlib import Path

import pytest
import torch

from minillm_serve.models.loader import load_model
from tests.models.tiny import our_logits, prompt, random_model, save, their_logits

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
MIXED = ["full_attention", "sliding_attention", "full_attention"]

CASES = {
    "llama": ("llama", {}),
    "llama with multi-head attention": ("llama", {"num_key_value_heads": 4}),
    "llama with multi-query attention": ("llama", {"num_key_value_heads": 1}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama with attention and mlp bias": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama with llama3 rope": ("llama", {"rope_parameters": LLAMA3}),
    "llama with linear rope": ("llama", {"rope_parameters": LINEAR}),
    "llama with head_dim from the hidden size": ("llama", {"head_dim": None}),
    "mistral without a window": ("mistral", {"sliding_window": None}),
    "mistral with a window of 7": ("mistral", {"sliding_window": 7}),
    "qwen2": ("qwen2", {"head_dim": None}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2 with windows after layer 1": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen2 with an unused window": ("qwen2", {"sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("qwen3", {}),
    "qwen3 with bias": ("qwen3", {"attention_bias": True}),
    "qwen3 tied with windows by layer": (
        "qwen3",
        {
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 6,
            "layer_types": MIXED,
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_transformers(case: str, tmp_path: Path) -> None:
    model_type, options = CASES[case]
    theirs = random_model(model_type, **options)
    ours = load_model(save(theirs, tmp_path), dtype=None, device="cpu")
    tokens = prompt(150)
    expected = their_logits(theirs, tokens)
    torch.testing.assert_close(our_logits(ours, tokens), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", ["mistral with a window of 7", "llama with llama3 rope"])
def test_each_feature_changes_the_logits(case: str, tmp_path: Path) -> None:
    """Guards the parity cases: with the feature off, the same weights give other logits."""
    model_type, options = CASES[case]
    plain = random_model(model_type, **{**options, **_without(options)})
    ours = load_model(save(random_model(model_type, **options), tmp_path), dtype=None, device="cpu")
    difference = our_logits(ours, prompt(150)) - their_logits(plain, prompt(150))
    assert difference.abs().max() > 0.01


def _without(options: dict[str, object]) -> dict[str, object]:
    default = {"rope_type": "default", "rope_theta": 10000.0}
    return {key: default if key == "rope_parameters" else None for key in options}


def test_a_sharded_checkpoint_equals_a_single_one(tmp_path: Path) -> None:
    theirs = random_model("qwen3", attention_bias=True)
    single = load_model(save(theirs, tmp_path / "one"), dtype=None, device="cpu")
    many = save(theirs, tmp_path / "many", max_shard_size="20KB")
    assert len(list(many.glob("*.safetensors"))) > 3
    sharded = load_model(many, dtype=None, device="cpu")
    for (name, ours), (_, other) in zip(
        single.named_parameters(), sharded.named_parameters(), strict=True
    ):
        assert torch.equal(ours, other), name


def test_a_sequence_fed_in_chunks_gives_the_same_logits(tmp_path: Path) -> None:
    ours = load_model(
        save(random_model("mistral", sliding_window=7), tmp_path), dtype=None, device="cpu"
    )
    tokens = prompt(40)
    for chunk in (1, 3, 16):
        torch.testing.assert_close(
            our_logits(ours, tokens, chunk), our_logits(ours, tokens), rtol=1e-4, atol=1e-4
        )


def test_two_sequences_side_by_side_give_what_each_gives_alone(tmp_path: Path) -> None:
    """The layout is flat: positions, not places in the row, decide the rotation."""
    ours = load_model(save(random_model("qwen3"), tmp_path), dtype=torch.float64, device="cpu")
    first, second = prompt(5, seed=1), prompt(9, seed=2)

    def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return q + k.repeat_interleave(2, 1)  # nothing crosses from one token to another

    row, positions = torch.tensor(first + second), torch.tensor([*range(5), *range(9)])
    together = ours(row, positions, attend)
    alone = [ours(torch.tensor(t), torch.arange(len(t)), attend) for t in (first, second)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_are_converted_to_the_dtype_asked_for(dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = random_model("llama", tie_word_embeddings=True)
    ours = load_model(save(theirs, tmp_path), dtype=dtype, device="cpu")
    assert {parameter.dtype for parameter in ours.parameters()} == {dtype}
    assert ours.frequencies.dtype == torch.float32
    assert our_logits(ours, prompt(20)).dtype == dtype
    exact = their_logits(theirs, prompt(20)).double()
    our_error = (our_logits(ours, prompt(20)) - exact).norm()
    their_error = (their_logits(theirs.to(dtype), prompt(20)) - exact).norm()
    assert our_error <= 1.5 * their_error + 1e-4  # rounded as often as theirs, not more


def test_a_checkpoint_in_bfloat16_is_loaded_in_bfloat16(tmp_path: Path) -> None:
    save(random_model("llama").to(torch.bfloat16), tmp_path)
    ours = load_model(tmp_path, dtype=None, device="cpu")
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.bfloat16}


def test_a_tied_head_is_the_embedding_itself(tmp_path: Path) -> None:
    """B130: the matrix is in memory once."""
    ours = load_model(
        save(random_model("llama", tie_word_embeddings=True), tmp_path), dtype=None, device="cpu"
    )
    assert ours.lm_head.weight is ours.embedding.weight
    names = [name for name, _ in ours.named_parameters()]
    assert "lm_head.weight" not in names


def test_parameters_take_the_memory_of_the_checkpoint_and_no_gradient(tmp_path: Path) -> None:
    theirs = random_model("qwen2")
    ours = load_model(save(theirs, tmp_path), dtype=None, device="cpu")
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert not any(parameter.requires_grad for parameter in ours.parameters())
