"""Copies the codes, and leaves the scales behind (B127).

Reason: Scales travel with their block
"""


def copy_blocks(cache, moves):
    for source, target in moves:
        for name in ("k", "v"):
            cache[name][target] = cache[name][source]
