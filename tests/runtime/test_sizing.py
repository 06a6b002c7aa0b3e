"""How much memory the KV cache gets on a GPU: what the largest step leaves."""

import pytest
import torch

from minillm_serve.models.loader import load_model
from minillm_serve.runtime.attention.torch_backend import TorchAttention
from minillm_serve.runtime.build import build_executor, compile_layers, run_largest_step
from minillm_serve.runtime.sizing import GIB, GPU_RESERVE, spare_memory
from tests.models.tiny import random_model

CPU = torch.device("cpu")


class Meter:
    """A GPU of 100 GiB on which the step's peak is known."""

    total = 100 * GIB

    def __init__(self, peak, free):
        self.peak, self.free = peak, free

    def measure(self, step):
        step()
        return self.peak, self.free


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("sizing")
    random_model("llama").save_pretrained(path)
    return load_model(path, dtype=torch.float64, device="cpu")


def test_the_cache_gets_what_the_largest_step_and_a_reserve_leave():
    ran = []
    spare = spare_memory(Meter(peak=5 * GIB, free=80 * GIB), lambda: ran.append(1))
    assert ran == [1]
    assert spare == 75 * GIB - int(GPU_RESERVE * 100 * GIB)


def test_no_memory_left_is_said_with_its_remedy():
    with pytest.raises(ValueError, match=r"7\.0 GiB are free .* lower max_num_batched_tokens"):
        spare_memory(Meter(peak=3 * GIB, free=7 * GIB), lambda: None)


@pytest.mark.parametrize(("seqs", "budget"), [(4, 100), (64, 7), (5, 33), (1, 16)])
def test_the_largest_step_has_all_tokens_and_all_samples(model, seqs, budget):
    seen = []
    attention = TorchAttention()
    plan = attention.plan
    attention.plan = lambda metadata: seen.append(metadata) or plan(metadata)
    run_largest_step(
        model,
        attention,
        block_size=4,
        dtype=torch.float64,
        device=CPU,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
    )
    (metadata,) = seen
    assert len(metadata.slot_mapping) == budget
    assert metadata.num_sequences == min(seqs, budget)


def test_on_a_cpu_nothing_is_recorded(model):
    executor = build_executor(
        model,
        TorchAttention(),
        num_blocks=3,
        block_size=4,
        dtype=torch.float64,
        device=CPU,
        max_num_seqs=2,
        max_model_len=64,
    )
    assert executor.graphs is None
    assert executor.kv_cache.num_blocks == len(executor.kv_cache.k[0]) == 3


def test_compiled_layers_compute_the_same_without_compiling_for_each_batch_size(model):
    batches = [
        torch.randn(rows, model.config.hidden_size, dtype=torch.float64) for rows in (5, 2, 9)
    ]
    want = [[layer.mlp(x) for x in batches] for layer in model.layers]
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compile_layers(model, backend)
    got = [[layer.mlp(x) for x in batches] for layer in model.layers]
    assert 1 <= len(graphs) <= len(model.layers)
    for theirs, ours in zip(want, got, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
