"""The waiting queue, beside a plain sorted list."""

from hypothesis import given, settings
from hypothesis import strategies as st

from minillm_serve.core import Request, Sequence
from minillm_serve.core.scheduler.queue import WaitingQueue


def sequence(rank, number):
    made = Sequence(Request(request_id=str(number), prompt_token_ids=(1,)))
    made.rank = (rank, number)
    return made


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.booleans()), max_size=150))
def test_head_order_oldest_and_newest_are_those_of_a_sorted_list(moves):
    queue, waiting, away = WaitingQueue(), [], []
    for number, (rank, pick, comes) in enumerate(moves):
        if comes or not waiting:
            # Somebody new, or somebody who left before: a preempted sequence keeps its rank.
            back = away and pick % 2
            waiting.append(away.pop(pick % len(away)) if back else sequence(rank, number))
            queue.add(waiting[-1])
        else:
            away.append(waiting.pop(pick % len(waiting)))
            queue.remove(away[-1])
        assert len(queue) == len(waiting)
        assert list(queue) == sorted(waiting, key=lambda s: s.rank)
        if waiting:
            assert queue.head() is min(waiting, key=lambda s: s.rank)
            assert (queue.oldest(), queue.newest()) == (waiting[0], waiting[-1])


def test_those_who_left_from_the_middle_do_not_pile_up():
    queue = WaitingQueue()
    first = sequence(0, 0)
    queue.add(first)
    for number in range(1, 10_000):
        passing = sequence(1, number)
        queue.add(passing)
        queue.remove(passing)
    assert queue.head() is first
    assert len(queue._heap) < 100
