"""Chapter 03's widgets and counts."""

from itertools import product

import pytest
import torch
from minillm_serve.kernels.launch import is_interpreted

from minillm_serve.course.chapter03 import floor, gpu, moved, pictures, who_reads
from minillm_serve.course.chapter03.stages import STAGES
from minillm_serve.runtime.attention import conformance
from minillm_serve.runtime.attention.torch_backend import TorchAttention
from minillm_serve.sim import MODELS


def test_b152_who_reads_what_draws_every_setting() -> None:
    widget = who_reads.who_reads_what()
    stages = ((2, 0), (4, 0), (5, 0), (5, 1))
    for stage, sequence, size, mask in product(stages, (1, 2), (2, 8), (0, 1)):
        widget.set(stage=stage, sequence=sequence, size=size, mask=bool(mask))
        assert widget.error is None, widget.values()


def test_with_a_mask_a_program_reads_its_own_tokens_and_nothing_else() -> None:
    for stage, head, sequence, size in product((2, 3, 4), (0, 5), range(4), (2, 4, 8)):
        shown = who_reads.scene(stage, head, sequence, 0, size, True)
        read, held = shown.lanes()
        assert len(read) == who_reads.LENGTHS[sequence]
        assert {shown.owner(slot) for slot in read} == {sequence}
        assert all(shown.owner(slot) is None for slot in held)


def test_without_a_mask_lanes_that_were_held_back_are_strays() -> None:
    masked = who_reads.scene(4, 0, 0, 0, 4, True)
    bare = who_reads.scene(4, 0, 0, 0, 4, False)
    assert set(bare.strays()) == set(masked.lanes()[1])
    assert len(bare.strays()) == 3  # the widget's question has this answer


def test_pieces_together_read_the_sequence_once() -> None:
    pieces = [who_reads.scene(5, 0, 2, piece, 4, True).lanes()[0] for piece in (0, 1)]
    assert not set(pieces[0]) & set(pieces[1])
    assert sum(map(len, pieces)) == who_reads.LENGTHS[2]


def test_the_query_heads_of_a_group_share_keys_until_they_share_a_program() -> None:
    sharers = [len(who_reads.scene(stage, 1, 0, 0, 4, True).sharers()) for stage in (2, 3, 4)]
    assert sharers == [3, 3, 1]


def test_torch_moves_the_cache_five_times_and_views_for_nothing() -> None:
    step = conformance.make_problem(
        ((1, 64), (1, 64)),
        device=torch.device("cpu"),
        dtype=torch.float32,
        heads=4,
        kv_heads=2,
        dim=64,
        block_size=16,
    )
    with moved.BytesMoved() as count, torch.inference_mode():
        conformance.attend(TorchAttention(), step)
        step.k_cache.transpose(0, 1)[:5]
    needed = 2 * 2 * 64 * 2 * 64 * 4
    names = ("index_select", "masked_fill_", "scaled_dot_product_attention")
    times = [round(count.by_name[name] / needed, 1) for name in names]
    assert times == [2, 2, 1]
    assert "transpose" not in count.by_name


def test_a_stopwatch_does_not_change_what_attention_gives() -> None:
    step = conformance.make_problem(
        conformance.MIXED, device=torch.device("cpu"), dtype=torch.float32
    )
    timed = moved.TimedAttention()
    assert torch.equal(conformance.attend(timed, step), conformance.attend(TorchAttention(), step))
    assert timed.seconds > 0


def test_the_floor_is_bytes_by_bandwidth() -> None:
    assert floor.attention_bytes("Llama-2-7B", 1, 1) == 512 * 1024
    at_once = floor.floor_s("Llama-3-8B", 16, 8192, "H200 SXM")
    assert at_once == pytest.approx(16 * 8192 * 131072 / 4.8e12)


def test_intensity_is_the_size_of_a_group() -> None:
    for name in ("Llama-2-7B", "Llama-3-8B", "Llama-3-70B"):
        shape = MODELS[name]
        assert floor.intensity(name) == shape.num_heads / shape.num_kv_heads


def test_every_card_and_model_of_the_floor_is_drawn() -> None:
    widget = floor.experiment()
    for card, model in product(floor.MULTIPROCESSORS, ("Llama-3-8B", "Llama-2-7B")):
        widget.set(card=card, model=model, batch=1, context=131072)
        assert widget.error is None, widget.values()


def test_without_groups_the_gap_between_stages_3_and_4_is_gone() -> None:
    times = pictures.times_the_floor(group=1)
    assert times[STAGES[2].title] == times[STAGES[3].title] == 1


def test_the_idea_is_drawn() -> None:
    assert len(pictures.idea().axes[0].patches) > 30


@pytest.mark.skipif(not is_interpreted(STAGES[0].kernel), reason="there are times on a GPU")
def test_interpreted_kernels_are_given_no_times() -> None:
    assert gpu.times().data == gpu.NO_GPU
