"""Models that the tests of `LLM` share."""

import pytest

from minillm_serve import LLM
from tests.llm.tiny import save_tiny


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def make_llm(tiny_dir):
    """Builds an `LLM` on the tiny model, with every invariant checked."""

    def make(**options) -> LLM:
        options.setdefault("kv_cache_memory", None if "num_blocks" in options else 2**20)
        return LLM(tiny_dir, debug_invariants=True, **options)

    return make
