"""A random crowd of users against the plain loop."""

from tests.core.machine import STEPS, run_machine
from tests.core.users_machine import UsersMachine


def test_a_random_crowd_is_served_right_through_10_000_steps():
    assert run_machine(UsersMachine) >= STEPS
