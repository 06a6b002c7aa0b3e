"""A random crowd whose prompts begin alike, under both prefix caches and without any."""

import pytest

from tests.core.machine import STEPS, run_machine
from tests.core.sharing_machine import SharingMachine


@pytest.mark.parametrize("kind", ["hash", "radix", None])
def test_sharing_changes_nobodys_tokens_through_10_000_random_steps_b04_b05_b10_b11(kind):
    assert run_machine(type(f"{kind}Machine", (SharingMachine,), {"kind": kind})) >= STEPS


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["hash", "radix"])
def test_nor_through_100_000(kind):
    assert (
        run_machine(type(f"{kind}Machine", (SharingMachine,), {"kind": kind}), steps=100_000)
        >= 100_000
    )
