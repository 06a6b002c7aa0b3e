"""Counts the block in which two prompts part, or in which one ends, as well.

Reason: that counts a block that is the same in part
"""


def common_blocks(one, other, block_size):
    same = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        same += 1
    return -(-same // block_size)
