"""Takes a move for (to, from).

Reason: moves are pairs (from, to)
"""


def copy_blocks(cache, moves):
    for source, target in moves:
        for tensor in cache.values():
            tensor[source] = tensor[target]
