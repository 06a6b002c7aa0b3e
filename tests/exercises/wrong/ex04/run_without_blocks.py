"""Does not look at what make_room says.

Reason: gave way in this step, and is in the batch all the same
"""


class MyScheduler(Roomy):  # noqa: F821
    def schedule(self):
        made, preempted = [], []
        budget = self.max_num_batched_tokens
        for sequence in list(self.running):
            num_tokens = min(sequence.num_uncomputed, budget)
            if num_tokens:
                self.make_room(sequence, num_tokens, preempted)
                made.append(ScheduledSequence.of(sequence, num_tokens))  # noqa: F821
                budget -= num_tokens
        if not preempted:
            made += self.let_in(budget)
        return Batch(tuple(made), tuple(preempted))  # noqa: F821
