"""Gives turns in order of rank: an important prompt stalls who is typing.

Reason: is typing and stalls
"""


class FairScheduler(Entrance):  # noqa: F821
    def schedule(self):
        made, preempted = [], []
        budget = self.max_num_batched_tokens
        for sequence in list(self.running):
            num_tokens = min(sequence.num_uncomputed, budget)
            runs = sequence.status is SequenceStatus.RUNNING  # noqa: F821
            if not runs or not num_tokens:
                continue
            if self.make_room(sequence, num_tokens, preempted):
                made.append(ScheduledSequence.of(sequence, num_tokens))  # noqa: F821
                budget -= num_tokens
        if not preempted:
            made += self.let_in(budget)
        return Batch(tuple(made), tuple(preempted))  # noqa: F821
