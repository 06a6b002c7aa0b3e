"""Gives the last one's blocks back to the pool, and lets it go on with them.

Reason: blocks were freed that a running sequence still uses
"""


class MyScheduler(Roomy):  # noqa: F821
    def schedule(self):
        made, preempted = [], []
        budget = self.max_num_batched_tokens
        for sequence in list(self.running):
            num_tokens = min(sequence.num_uncomputed, budget)
            if not num_tokens:
                break
            last = self.running[-1]
            if not self.blocks.grow(sequence, sequence.num_computed + num_tokens):
                for block in last.block_table:
                    self.blocks.pool.release(block)
                break
            made.append(ScheduledSequence.of(sequence, num_tokens))  # noqa: F821
            budget -= num_tokens
        if not preempted:
            made += self.let_in(budget)
        return Batch(tuple(made), tuple(preempted))  # noqa: F821
