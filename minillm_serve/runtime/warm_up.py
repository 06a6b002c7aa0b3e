"""Steps before the first request, so that nobody waits for kernels to be compiled."""

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.request import Sequence
from minillm_serve.runtime.device import working_on
from minillm_serve.runtime.made_up import made_up_sequences
from minillm_serve.runtime.torch_executor import TorchExecutor

#: Sequences of a decoding step. Kernels for CPUs take rows in groups of so many.
SIZES = range(8, 0, -1)
#: Tokens of a prompt.
LENGTH = 40


def warm_up(
    executor: TorchExecutor, *, max_num_seqs: int, max_num_batched_tokens: int, max_len: int
) -> None:
    """Runs steps of every kind: a prompt, the rest of one, decoding alone and together.

    On a machine that has never run them, kernels for CPUs are compiled meanwhile, which takes up to
    a minute, and kept on disk. They run in blocks that belong to nobody yet, and leave no trace:
    the engine has not seen them.

    Args:
        executor: serves nobody yet.
        max_num_seqs: no step has more sequences.
        max_num_batched_tokens: no step has more rows.
        max_len: no sequence gets longer.
    """
    num_blocks, block_size = executor.kv_cache.num_blocks, executor.kv_cache.block_size
    length = min(LENGTH, max_num_batched_tokens, max_len, num_blocks * block_size)
    width = -(-length // block_size)
    count = min(SIZES[0], max_num_seqs, max_num_batched_tokens, num_blocks // width)
    sequences = made_up_sequences(count, length, width)
    with working_on(executor.device):
        _step(executor, sequences[:1], 0)
        _step(executor, sequences[:1], length // 2)
        for size in SIZES:
            if size <= count:
                _step(executor, sequences[:size], length - 1)
        if count > 1 and length > block_size:
            sequences[1].block_table = sequences[0].block_table  # what is shared is read once
            _step(executor, sequences[:2], length - 1)


def _step(executor: TorchExecutor, sequences: list[Sequence], start: int) -> None:
    scheduled = (ScheduledSequence(s, start, len(s) - start, True) for s in sequences)
    executor.submit(Batch(tuple(scheduled))).wait()
