"""What a GPU runs instead of torch's operations, run here on a CPU by Triton's interpreter.

Only the question "is this tensor on a GPU?" is answered for the sake of the test; all that follows
is what runs there.
"""

import math

import pytest
import torch

from minillm_serve.core import Request, SamplingParams, Sequence
from minillm_serve.models import functional
from minillm_serve.models.layers import Placement, RMSNorm
from minillm_serve.runtime.attention.triton_backend import TritonAttention
from minillm_serve.runtime.sampling import sampler
from tests.runtime.choosing import choose_tokens
from tests.runtime.paged import make_problem

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
V = 300


@pytest.fixture
def on_gpu(monkeypatch):
    """Everything is taken for a GPU's."""
    monkeypatch.setattr(functional, "_fusible", lambda x: False)
    monkeypatch.setattr(functional, "on_gpu", lambda x: x.dtype is not torch.float64)
    monkeypatch.setattr(sampler, "_has_kernel", lambda logits: True)


def random(*shape, seed=0, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype).to(DEVICE)


@pytest.mark.parametrize("shape", [(48,), (6, 16)])
def test_the_norm_on_a_gpu_is_the_norm(on_gpu, shape):
    x, weight = random(5, *shape), random(*shape, seed=1)
    want = functional.rms_norm(x.double(), weight.double(), 1e-5)
    got = functional.rms_norm(x, weight, 1e-5)
    torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=2e-6)


def test_adding_and_norm_on_a_gpu_give_both_results(on_gpu):
    x, residual, weight = random(5, 48), random(5, 48, seed=1), random(48, seed=2)
    want = functional.add_rms_norm(x.double(), residual.double(), weight.double(), 1e-5)
    got = functional.add_rms_norm(x, residual.clone(), weight, 1e-5)
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=2e-6, atol=2e-6)


def test_the_activation_on_a_gpu_is_the_activation(on_gpu):
    gate_up = random(5, 160)
    want = functional.silu_mul(gate_up.double())
    torch.testing.assert_close(functional.silu_mul(gate_up).double(), want, rtol=2e-6, atol=2e-6)


def sequence(seed=0, length=3, **params):
    params = SamplingParams(seed=seed, **params)
    return Sequence(Request(request_id="r", prompt_token_ids=(1,) * length, params=params))


ROWS = [
    sequence(temperature=0),
    sequence(seed=1),
    sequence(seed=2**63 + 5, temperature=0.7, length=9),
    sequence(seed=-4, top_k=5),
    sequence(seed=3, top_k=10**12),
    sequence(seed=4, top_p=0.6, temperature=1.5),
    sequence(seed=5, min_p=0.05),
    sequence(seed=6, top_k=40, top_p=0.9, min_p=0.01),
    sequence(seed=7, temperature=1e-9),
]


def test_the_sampler_on_a_gpu_chooses_the_same_tokens(monkeypatch):
    logits = random(len(ROWS), V) * 3
    want = choose_tokens(logits.cpu(), ROWS)
    monkeypatch.setattr(sampler, "_has_kernel", lambda logits: True)
    assert choose_tokens(logits, ROWS) == want


@pytest.mark.parametrize("rows", [[0, 0, 8], [0, 1, 5]], ids=["greedy", "mixed"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_faults_are_told_apart_on_a_gpu_too_b68_b88(on_gpu, rows, bad):
    logits = random(3, V)
    logits[1, 7] = bad
    nothing = sequence(temperature=0, min_tokens=1, stop_token_ids=list(range(V)), max_tokens=2)
    first, second, third = choose_tokens(logits, [nothing, ROWS[rows[1]], ROWS[rows[2]]])
    assert (first, second) == (-2, -1)
    assert third >= 0


@pytest.mark.parametrize("norm", [False, True])
def test_the_fused_write_of_the_triton_backend_is_norm_rotation_and_write(norm):
    problem = make_problem([9, 5, 1], [1, 3, 1], heads=4, kv_heads=2, dim=16, poison=0.0)
    metadata, backend = problem.metadata, TritonAttention()
    positions = torch.tensor([8, 2, 3, 4, 0], device=DEVICE)
    frequencies = torch.tensor([10000.0 ** (-i / 8) for i in range(8)], device=DEVICE)
    qkv = random(5, 8, 16)
    qk_norm = None
    if norm:
        qk_norm = RMSNorm((6, 16), 1e-5, Placement(torch.float32, DEVICE))
        qk_norm.weight.data.copy_(random(6, 16, seed=3))
    empty = torch.zeros_like(problem.k_cache, dtype=torch.float32, device=DEVICE)
    caches = [empty.clone() for _ in range(4)]
    write = backend.rotating_writer(frequencies, 32)
    slots = metadata.slot_mapping.to(DEVICE)
    q = write(qkv, positions, caches[0], caches[1], slots, qk_norm, None)

    qk, v = qkv[:, :6].double(), qkv[:, 6:]
    if qk_norm is not None:
        qk = functional.rms_norm(qk, qk_norm.weight.double(), 1e-5)
    angles = positions[:, None].double() * frequencies.double().repeat(2)
    sin = angles.sin() * torch.tensor([-1.0] * 8 + [1.0] * 8, device=DEVICE)
    qk = functional.rotate(qk, angles.cos()[:, None], sin[:, None]).float()
    backend.write(qk[:, 4:], v, caches[2], caches[3], slots)
    torch.testing.assert_close(q, qk[:, :4], rtol=3e-6, atol=3e-6)
    torch.testing.assert_close(caches[:2], caches[2:], rtol=3e-6, atol=3e-6)
