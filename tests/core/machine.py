"""Runs a hypothesis state machine for a stated number of steps."""

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test

STEPS = 10_000


class CountingMachine(RuleBasedStateMachine):
    """Counts its steps over all examples, since hypothesis is free to take fewer than asked."""

    steps = 0

    @invariant()
    def count(self):
        type(self).steps += 1


def run_machine(machine: type[CountingMachine], *, steps: int = STEPS) -> int:
    """Lets hypothesis drive it: its rules and invariants assert. How many steps it took."""
    machine.steps = 0
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=steps // 30,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return machine.steps
