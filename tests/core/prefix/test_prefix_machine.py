"""Both prefix caches against the model, call by call."""

import pytest

from minillm_serve.core import PREFIX_CACHES
from tests.core.machine import STEPS, run_machine
from tests.core.prefix.cache_machine import CacheMachine


def machine_for(name):
    return type(name, (CacheMachine,), {"make": staticmethod(PREFIX_CACHES[name])})


@pytest.mark.parametrize("name", PREFIX_CACHES)
def test_every_answer_is_the_models_through_10_000_random_steps(name):
    """B04, B05, B16, B19: matches, locks, evictions in their order, withdrawals, namespaces."""
    assert run_machine(machine_for(name)) >= STEPS


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PREFIX_CACHES)
def test_every_answer_is_the_models_through_100_000_random_steps(name):
    assert run_machine(machine_for(name), steps=100_000) >= 100_000
