"""The engine on Triton's kernels. Without a GPU they are interpreted: right, and slow."""

import os
import subprocess
import sys

import pytest
import torch

from minillm_serve import LLM, SamplingParams
from tests.llm.tiny import save_tiny
from tests.models.tiny import prompt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def greedy(llm, prompts, count):
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize("overlapped", [False, True], ids=["plain", "async"])
def test_a_tiny_model_generates_32_tokens_like_the_torch_backend(tiny_dir, overlapped):
    prompts = [prompt(length, seed=length) for length in (1, 6, 19)]
    options = {
        "device": DEVICE,
        "dtype": "float32",
        "block_size": 16,
        "num_blocks": 8,
        "max_num_batched_tokens": 13,
        "debug_invariants": True,
    }
    want = greedy(LLM(tiny_dir, attention_backend="torch", **options), prompts, 32)
    llm = LLM(tiny_dir, attention_backend="triton", async_scheduling=overlapped, **options)
    assert greedy(llm, prompts, 32) == want


@pytest.mark.parametrize(
    ("model_type", "options"),
    [("qwen3", {}), ("mistral", {"sliding_window": 9})],
    ids=["norm of heads", "window"],
)
def test_what_other_models_need_is_there(tmp_path, model_type, options):
    path = save_tiny(tmp_path, model_type, **options)
    prompts = [prompt(length, seed=length) for length in (3, 20)]
    common = {"device": DEVICE, "dtype": "float32", "num_blocks": 8}
    want = greedy(LLM(path, attention_backend="torch", **common), prompts, 8)
    assert greedy(LLM(path, attention_backend="triton", **common), prompts, 8) == want


@pytest.mark.model
def test_the_embedded_model_generates_4_tokens_like_the_cpu_backend():
    prompts = ["The capital of France is", "1, 2, 3,"]
    options = {"dtype": "float32", "num_blocks": 8}
    want = greedy(LLM(**options, device="cpu"), prompts, 4)
    assert greedy(LLM(**options, device=DEVICE, attention_backend="triton"), prompts, 4) == want


def start_engine(before: str, **environment: str) -> subprocess.CompletedProcess:
    code = (
        f"{before}\n"
        "import torch\n"
        "from minillm_serve.runtime.attention.registry import select_backend\n"
        "cpu = torch.device('cpu')\n"
        "select_backend('triton', device=cpu, dtype=torch.float32, needs_window=False)\n"
        "print('ready')"
    )
    inherited = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )


def test_on_a_cpu_the_interpreter_must_be_asked_for_b134():
    done = start_engine("")
    assert "attention_backend='triton' cannot run here" in done.stderr
    assert "set TRITON_INTERPRET=1 before the first import of triton" in done.stderr


def test_a_variable_that_is_set_too_late_is_explained_b134():
    done = start_engine("import triton, os; os.environ['TRITON_INTERPRET'] = '1'")
    assert "TRITON_INTERPRET=1 was set too late" in done.stderr


def test_with_the_variable_set_in_time_the_backend_starts_b134():
    done = start_engine("", TRITON_INTERPRET="1")
    assert done.stdout.strip() == "ready", done.stderr


def test_without_triton_the_rest_of_the_engine_works_and_the_backend_says_why():
    """There is no Triton for macOS and Windows."""
    hide = (
        "import sys, importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'triton' else find(name, *rest)\n"
        "sys.modules['triton'] = None\n"
        "import minillm_serve.llm\n"
    )
    done = start_engine(hide)
    assert "needs Triton, which is not installed" in done.stderr
