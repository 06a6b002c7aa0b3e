"""Takes the last one's blocks and leaves it its seat.

Reason: runs on, but its blocks were taken away
"""


class MyScheduler(Roomy):  # noqa: F821
    def schedule(self):
        made, preempted = [], []
        budget = self.max_num_batched_tokens
        for sequence in list(self.running):
            num_tokens = min(sequence.num_uncomputed, budget)
            if not num_tokens:
                break
            if not self.blocks.grow(sequence, sequence.num_computed + num_tokens):
                self.blocks.release(self.running[-1])
                continue
            made.append(ScheduledSequence.of(sequence, num_tokens))  # noqa: F821
            budget -= num_tokens
        if not preempted:
            made += self.let_in(budget)
        return Batch(tuple(made), tuple(preempted))  # noqa: F821
