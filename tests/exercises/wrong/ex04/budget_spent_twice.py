"""Gives the newcomers the whole budget once more.

Reason: each slice leaves less for the next
"""


class MyScheduler(Roomy):  # noqa: F821
    def schedule(self):
        made, preempted = [], []
        budget = self.max_num_batched_tokens
        for sequence in list(self.running):
            num_tokens = min(sequence.num_uncomputed, budget)
            if sequence.status is not SequenceStatus.RUNNING or not num_tokens:  # noqa: F821
                continue
            if self.make_room(sequence, num_tokens, preempted):
                made.append(ScheduledSequence.of(sequence, num_tokens))  # noqa: F821
                budget -= num_tokens
        if not preempted:
            made += self.let_in(self.max_num_batched_tokens)
        return Batch(tuple(made), tuple(preempted))  # noqa: F821
