"""Numbers of threads, which belong to threads: an engine may be stepped from any."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numba
import pytest
import torch

from minillm_serve import LLM, SamplingParams
from minillm_serve.runtime import torch_executor
from minillm_serve.runtime.threads import release_threads
from tests.llm.tiny import save_tiny
from tests.server.running import eventually

PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)


@pytest.fixture(scope="module")
def tiny_dir(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("overlapped", [False, True])
def test_whichever_thread_runs_steps_has_the_numbers_of_the_one_that_built_the_engine(
    tiny_dir, monkeypatch, overlapped
):
    """torch's and Numba's alike, set once: numbers that differ cost more than all computing."""
    set_to, share_threads = [], torch_executor.share_threads
    monkeypatch.setattr(
        torch_executor, "share_threads", lambda n: (set_to.append(n), share_threads(n))
    )
    llm = LLM(tiny_dir, num_blocks=64, block_size=4, async_scheduling=overlapped)

    def generate(count):
        for _ in range(count):
            llm.generate("hello", PARAMS, use_tqdm=False)
        return torch.get_num_threads(), numba.get_num_threads()

    mine = generate(2)
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(generate, 2).result()
    assert set_to == [torch.get_num_threads()] * (1 if overlapped else 2)
    if not overlapped:
        assert mine == theirs == (torch.get_num_threads(),) * 2


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_threads_that_computed_for_this_one_are_let_go():
    """Idle ones would count, and make OpenMP put the threads of others to sleep."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        torch.ones(2**20).exp_()
        with_them = len(os.listdir("/proc/self/task"))
        release_threads()
        eventually(lambda: len(os.listdir("/proc/self/task")) <= with_them - 2, "two fewer")
        assert torch.ones(2**20).exp_().sum() > 2**20  # new ones come when they are needed
    finally:
        torch.set_num_threads(before)
        release_threads()
