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


@pytest.fixture(scope="session")
def make_exact(tiny_dir):
    """Builds an `LLM` in float64: no token depends on who else is in its batch, or in its step."""

    def make(**options) -> LLM:
        options = {
            "dtype": "float64",
            "block_size": 4,
            "num_blocks": 300,
            "max_model_len": 64,
            **options,
        }
        return LLM(tiny_dir, debug_invariants=True, **options)

    return make


@pytest.fixture(scope="session")
def speculate(make_exact):
    """The same, with drafts by a drafter of the test's own: as many as it is allowed, always."""

    def make(drafter, most=4, **options) -> LLM:
        config = {"method": "ngram", "num_speculative_tokens": most, "adaptive": False}
        llm = make_exact(speculative_config=config, **options)
        llm.engine.executor.drafter = drafter
        return llm

    return make
