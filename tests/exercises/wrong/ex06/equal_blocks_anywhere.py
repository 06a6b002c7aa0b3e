"""Goes on behind the first block that differs.

Reason: that counts blocks that are equal behind one that differs
"""


def common_blocks(one, other, block_size):
    starts = range(0, min(len(one), len(other)) - block_size + 1, block_size)
    return sum(one[i : i + block_size] == other[i : i + block_size] for i in starts)
