"""Lets nobody in before all have left.

Reason: waits, though there is a free seat
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
        if not self.running:
            made += self.let_in(budget)
        return Batch(tuple(made), tuple(preempted))  # noqa: F821
