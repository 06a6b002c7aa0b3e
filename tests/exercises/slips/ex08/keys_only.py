"""Copies keys with their scales, and no values.

Reason: v and v_scale: not copied
"""


def copy_blocks(cache, moves):
    for source, target in moves:
        for name in ("k", "k_scale"):
            cache[name][target] = cache[name][source]
