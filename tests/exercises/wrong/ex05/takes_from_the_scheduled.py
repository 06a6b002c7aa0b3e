"""Gives turns from the last in rank on, who then gives way with a slice in hand.

Reason: gave way in this step, and is in the batch all the same
"""


class FairScheduler(Entrance):  # noqa: F821
    def schedule(self):
        made, preempted = [], []
        budget = self.max_num_batched_tokens
        for sequence in sorted(self.running[::-1], key=lambda s: s.num_uncomputed > 1):
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
