"""The cost model: the arithmetic that the chapters quote, and its behaviour at the edges."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minillm_serve.sim import (
    HARDWARE,
    MODELS,
    GiB,
    Hardware,
    MiB,
    ModelShape,
    decode_cost,
    decode_step_time,
    format_bytes,
    kv_bytes_per_token,
    max_conversations,
    max_tokens,
    measured_cpu,
    prefill_cost,
    prefill_time,
    throughput,
    throughput_ceiling,
)

LLAMA2 = MODELS["Llama-2-7B"]
A100 = HARDWARE["A100 80GB"]


def test_a_token_of_llama_2_7b_costs_half_a_mebibyte():
    assert kv_bytes_per_token(32, 32, 128, 2) == MiB // 2
    assert LLAMA2.kv_bytes_per_token(2) == MiB // 2


def test_a_conversation_of_4096_tokens_costs_2_gib():
    assert 4096 * LLAMA2.kv_bytes_per_token(2) == 2 * GiB


def test_a_40_gib_card_less_14_gib_of_weights_holds_13_long_conversations():
    assert 40 * GiB - 14 * GiB == 26 * GiB
    assert max_conversations(40 * GiB, 14 * GiB, 0, MiB // 2, 4096) == 13
    assert max_tokens(40 * GiB, 14 * GiB, 0, MiB // 2) == 13 * 4096


def test_the_real_card_and_the_real_weights_hold_13_too():
    card = HARDWARE["A100 40GB"]
    fits = max_conversations(card.memory_bytes, LLAMA2.weight_bytes(16), 0, MiB // 2, 4096)
    assert fits == 13


def test_a_batch_of_64_steps_in_23_ms_and_yields_2783_tokens_per_second():
    bandwidth = 2000 * GiB
    moved = 14 * GiB + 64 * 1024 * MiB / 2
    step = moved / bandwidth
    assert step == pytest.approx(0.023)
    assert round(throughput(64, step)) == 2783
    assert throughput_ceiling(bandwidth, 1024, MiB / 2) == 4000


def test_the_roofline_of_the_model_agrees_when_given_the_same_machine():
    """Llama-2-7B really streams 12.3 GiB, not 14: the step is that much shorter."""
    machine = Hardware("round", 40 * GiB, 2000 * GiB, 312e12, 19.5e12, "round numbers", 2023)
    cost = decode_cost(machine, LLAMA2, 64, 1024)
    assert cost.bound_by == "memory"
    assert cost.bytes_moved == LLAMA2.streamed_weight_bytes(16) + 32 * GiB
    assert decode_step_time(machine, LLAMA2, 64, 1024) == pytest.approx(0.0222, abs=2e-4)


def test_decode_is_bound_by_memory_and_a_long_prefill_by_compute():
    assert decode_cost(A100, LLAMA2, 1, 1024).bound_by == "memory"
    assert prefill_cost(A100, LLAMA2, 2048).bound_by == "compute"
    assert prefill_cost(A100, LLAMA2, 1).bound_by == "memory"


def test_flops_per_token_are_two_per_weight_plus_attention():
    assert LLAMA2.flops_per_token(0) == 2 * LLAMA2.matmul_parameters
    extra = LLAMA2.flops_per_token(1000) - LLAMA2.flops_per_token(0)
    assert extra == 4 * 32 * 32 * 128 * 1000


def test_prefill_of_one_token_costs_what_decoding_one_token_costs():
    assert prefill_cost(A100, LLAMA2, 1).flops == decode_cost(A100, LLAMA2, 1, 1).flops


def test_prefill_equals_the_sum_of_its_tokens_less_the_heads_it_skips():
    shape, tokens = MODELS["SmolLM2-135M"], 17
    one_by_one = sum(shape.flops_per_token(i) for i in range(1, tokens + 1))
    skipped = 2 * shape.hidden_size * shape.vocab_size * (tokens - 1)
    assert prefill_cost(A100, shape, tokens).flops == one_by_one - skipped


def test_fewer_bits_move_fewer_bytes_but_multiply_no_faster():
    wide, narrow = (decode_cost(A100, LLAMA2, 8, 512, weight_bits=b) for b in (16, 4))
    assert narrow.memory_s < wide.memory_s
    assert narrow.compute_s == wide.compute_s
    assert decode_cost(A100, LLAMA2, 8, 512, kv_bits=8).bytes_moved < wide.bytes_moved


def test_fp32_weights_run_at_the_fp32_rate():
    assert A100.flops(32) == A100.flops_fp32
    assert A100.flops(16) == A100.flops(4) == A100.flops_fp16_dense


def test_group_scales_are_counted_when_asked_for():
    plain, grouped = LLAMA2.weight_bytes(4), LLAMA2.weight_bytes(4, group_size=128)
    assert grouped - plain == pytest.approx(LLAMA2.num_parameters / 128 * 2, rel=1e-6)


def test_a_tied_embedding_is_counted_once():
    tied = MODELS["SmolLM2-135M"]
    untied = ModelShape(
        **{**tied.__dict__, "tie_word_embeddings": False, "published_parameters": 0}
    )
    assert untied.num_parameters - tied.num_parameters == tied.vocab_size * tied.hidden_size
    assert untied.streamed_parameters == tied.streamed_parameters


def test_weights_that_do_not_fit_leave_room_for_no_one():
    assert max_tokens(10 * GiB, 14 * GiB, 0, MiB / 2) == 0
    assert max_conversations(10 * GiB, 14 * GiB, 0, MiB / 2, 1) == 0


@given(
    memory=st.integers(0, 10**12),
    weights=st.integers(0, 10**12),
    kv=st.integers(1, 10**7),
    context=st.integers(1, 10**6),
)
def test_what_is_promised_fits_and_one_more_does_not(memory, weights, kv, context):
    count = max_conversations(memory, weights, 0, kv, context)
    free = memory - weights
    assert count * context * kv <= max(0, free)
    assert (count + 1) * context * kv > free


@given(batch=st.integers(1, 512), context=st.integers(1, 8192))
def test_a_bigger_batch_is_never_faster_per_step_nor_slower_in_total(batch, context):
    small, big = (decode_step_time(A100, LLAMA2, b, context) for b in (batch, batch + 1))
    assert big >= small
    assert throughput(batch + 1, big) >= throughput(batch, small) * (1 - 1e-12)
    ceiling = throughput_ceiling(A100.bandwidth_bytes_s, context, LLAMA2.kv_bytes_per_token(2))
    assert throughput(batch, small) < ceiling


def test_the_shape_of_a_loaded_model_is_taken_over_field_by_field():
    preset = MODELS["Qwen2.5-7B"]
    own = {"name", "source", "year", "published_parameters"}
    fields = {k: v for k, v in preset.__dict__.items() if k not in own}
    config = SimpleNamespace(architecture="x", **fields)
    shape = ModelShape.from_model_config(config)  # type: ignore[arg-type]
    assert shape.num_parameters == preset.published_parameters
    assert shape.name == "x"


def test_this_machine_measures_itself_once():
    cpu = measured_cpu()
    assert cpu.source.startswith("measured")
    assert cpu.bandwidth_bytes_s > 1e8
    assert cpu.flops_fp32 > 1e8
    assert cpu.memory_bytes > 1e8
    assert measured_cpu() is cpu


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kv_bytes_per_token(0, 1, 1, 2), "num_layers is 0"),
        (lambda: max_tokens(-1, 0, 0, 1), "memory_bytes is -1"),
        (lambda: max_tokens(1, 0, 0, 0), "kv_per_token is 0"),
        (lambda: max_conversations(1, 0, 0, 1, 0), "context is 0"),
        (lambda: decode_cost(A100, LLAMA2, 0, 1), "batch=0"),
        (lambda: prefill_time(A100, LLAMA2, 0), "tokens is 0"),
        (lambda: throughput(0, 1.0), "batch=0"),
        (lambda: throughput_ceiling(0, 1, 1), "bandwidth_bytes_s=0"),
        (lambda: LLAMA2.kv_bytes_per_token(0), "dtype_bytes is 0"),
        (lambda: LLAMA2.weight_bytes(0), "bits=0"),
        (lambda: LLAMA2.flops_per_token(-1), "context is -1"),
        (lambda: Hardware("x", 0, 1, 1, 1, "", 2020), "memory_bytes is 0"),
        (lambda: ModelShape("x", 1, 8, 8, 3, 2, 4, 10, True), "num_heads=3"),
        (lambda: measured_cpu(repeats=0), "repeats is 0"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_bytes_are_said_in_binary_units():
    assert format_bytes(MiB / 2) == "512 KiB"
    assert format_bytes(2 * GiB) == "2 GiB"
    assert format_bytes(96) == "96 B"
    assert format_bytes(12.55 * GiB) == "12.55 GiB"
    assert format_bytes(-3 * GiB) == "-3 GiB"
    assert format_bytes(10240 * GiB, 0) == "10,240 GiB"
