"""Servers that the tests share, each on the tiny model, behind a real port."""

import pytest

from minillm_serve import LLM
from tests.llm.tiny import save_tiny
from tests.server.running import Running


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def make_llm(tiny_dir):
    """Builds an `LLM` whose tokens do not depend on who else is in its batch."""

    def make(**options) -> LLM:
        options = {"dtype": "float64", "num_blocks": 256, "block_size": 4, **options}
        return LLM(tiny_dir, debug_invariants=True, **options)

    return make


@pytest.fixture(scope="session")
def start(make_llm):
    """Starts a server of a test's own; use it in a `with`."""

    def start(settings=None, llm=None, **options) -> Running:
        return Running(make_llm(**options) if llm is None else llm, **(settings or {}))

    return start


@pytest.fixture(scope="module")
def server(start):
    """One server for the tests of a module that do not disturb each other."""
    with start(max_num_waiting=64) as running:
        yield running
        running.wait_until_idle()


@pytest.fixture(autouse=True)
def _nothing_stays_behind(request):
    """Whatever a test did to the module's server: it is idle afterwards, and well."""
    yield
    if "server" in request.fixturenames:
        running = request.getfixturevalue("server")
        running.wait_until_idle()
        assert running.client.get("/health").status_code == 200
