"""What two KV blocks must have in common before they can be the same: more than their tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Namespace:
    """Where a prefix is cached; nothing is ever found from another namespace.

    Attributes:
        model: whose keys and values they are.
        kv_dtype: how those are stored.
        adapter: what changes the model's weights, if anything does.
        salt: a user's or a tenant's own. Whoever does not know it can neither hit these blocks nor
            learn, from how fast an answer begins, that somebody has asked this before.
    """

    model: str = ""
    kv_dtype: str = ""
    adapter: str | None = None
    salt: str | None = None


#: A block's tokens. The first block of a chain bears the namespace in front of them, field by field
#: with its name, so that a salt "x" is not an adapter "x".
Key: TypeAlias = tuple[Namespace | int, ...]


def block_keys(token_ids: Sequence[int], block_size: int, namespace: Namespace) -> Iterator[Key]:
    """One key for each whole block of these tokens, made only when it is asked for."""
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        tokens = tuple(token_ids[start : start + block_size])
        yield tokens if start else (namespace, *tokens)
