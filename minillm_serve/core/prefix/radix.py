"""Prefixes as a tree: what two of them have in common is stored once, above where they part."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from minillm_serve.core.errors import InvariantViolation
from minillm_serve.core.prefix.namespace import Key, Namespace, block_keys


class Node:
    """A run of blocks with nothing branching off between them, and the tokens of each (`keys`).

    All of them are locked, or none: `locks` are those on the last block, and one for each child
    that has any. A child is found by its first block's tokens.
    """

    __slots__ = ("blocks", "children", "keys", "locks", "parent")

    def __init__(self, blocks: list[int], keys: list[Key], parent: "Node | None") -> None:
        self.blocks, self.keys, self.locks = blocks, keys, 0
        self.children: dict[Key, Node] = {}
        self.parent = parent or self
        if parent is not None:
            parent.children[keys[0]] = self


class RadixPrefixCache:
    """A prefix cache as a compressed tree of blocks, after SGLang's RadixAttention.

        once upon a time | there was a cat | who never slept          [7 2] --+-- [9]
        once upon a time | there was a cat | and had no hat                   +-- [4]

    A run is cut in two wherever a prefix ends or parts from it, so that each node is used, locked
    and forgotten as one. Eviction trims a leaf block by block, from its end.

    Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs", 2023.

    Args:
        block_size: tokens a block.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.num_evictable = 0
        self._nodes: dict[int, Node] = {}  # of each block
        self._own_locks = Counter[int]()
        # Whatever nobody locks, least recently used first. A chain in use moves to the end, its
        # last node first: so each node stands before its parent, and the foremost is a leaf.
        self._idle = OrderedDict[Node, None]()
        self._root = Node([], [], None)
        self._root.locks = 1

    @property
    def num_cached(self) -> int:
        """See `PrefixCache`."""
        return len(self._nodes)

    def __contains__(self, block: int) -> bool:
        return block in self._nodes

    def match(self, token_ids: Sequence[int], namespace: Namespace) -> list[int]:
        """See `PrefixCache`."""
        blocks, _ = self._find(block_keys(token_ids, self.block_size, namespace))
        return blocks

    def publish(
        self,
        token_ids: Sequence[int],
        block_table: Sequence[int],
        num_written: int,
        namespace: Namespace,
    ) -> list[int]:
        """See `PrefixCache`."""
        written = token_ids[: min(num_written, len(block_table) * self.block_size)]
        keys = list(block_keys(written, self.block_size, namespace))
        found, node = self._find(keys)
        new = list(block_table[len(found) : len(keys)])
        for block in new:
            if block in self._nodes:
                raise InvariantViolation(f"block {block} is indexed already, behind other tokens")
        if new:
            node = Node(new, keys[len(found) :], node)
            self._nodes.update(dict.fromkeys(new, node))
            self.num_evictable += len(new)
            self._use(node)
        return list(new)

    def lock(self, block: int) -> None:
        """See `PrefixCache`."""
        if block not in self._nodes:
            raise InvariantViolation(f"block {block} is not indexed and cannot be locked")
        self._own_locks[block] += 1
        node = self._nodes[block]
        node = self._cut(node, node.blocks.index(block) + 1)
        node.locks += 1
        while node.locks == 1:  # it had none, so its parent is not locked on its behalf
            del self._idle[node]
            self.num_evictable -= len(node.blocks)
            node = node.parent
            node.locks += 1

    def unlock(self, block: int) -> None:
        """See `PrefixCache`."""
        if not self._own_locks[block]:
            raise InvariantViolation(f"block {block} is unlocked more often than locked")
        self._own_locks[block] -= 1
        self._loosen(self._nodes[block])

    def evict(self, count: int) -> list[int]:
        """See `PrefixCache`."""
        evicted: list[int] = []
        while self._idle and len(evicted) < count:
            leaf = next(iter(self._idle))
            block, key = leaf.blocks.pop(), leaf.keys.pop()
            if not leaf.blocks:
                del leaf.parent.children[key], self._idle[leaf]
            del self._nodes[block]
            self.num_evictable -= 1
            evicted.append(block)
        return evicted

    def withdraw(self, block: int) -> list[int]:
        """See `PrefixCache`."""
        if block not in self._nodes:
            return []
        top = self._nodes[block]
        above = self._cut(top, top.blocks.index(block))
        del above.children[top.keys[0]]
        gone = [top]
        for node in gone:
            gone.extend(node.children.values())
            self._forget(node)
        if top.locks:
            self._loosen(above)
        self._use(above)
        return [block for node in gone for block in node.blocks]

    def clear(self) -> list[int]:
        """See `PrefixCache`."""
        return self.evict(self.num_evictable)

    def _find(self, keys: Iterable[Key]) -> tuple[list[int], Node]:
        """The blocks of these keys as far as they are cached, and the node that ends there."""
        node, size, blocks = self._root, 0, list[int]()
        for key in keys:
            if size == len(node.keys) and key in node.children:
                node, size = node.children[key], 0
            if size == len(node.keys) or node.keys[size] != key:
                break
            blocks.append(node.blocks[size])
            size += 1
        node = self._cut(node, size)
        self._use(node)
        return blocks, node

    def _cut(self, node: Node, size: int) -> Node:
        """The node that ends after so many blocks of a run, which is cut in two for it if need be.

        The lower part stays the node that it was, with its children and its locks. As long as it
        has any, so has the upper one.
        """
        if size == len(node.blocks):
            return node
        if size == 0:
            return node.parent
        upper = Node(node.blocks[:size], node.keys[:size], node.parent)
        del node.blocks[:size], node.keys[:size]
        node.parent = upper
        upper.children[node.keys[0]] = node
        self._nodes.update(dict.fromkeys(upper.blocks, upper))
        if node.locks:
            upper.locks = 1
        else:
            self._idle[upper] = None  # last in line: it is cut off because it is in use now
        return upper

    def _use(self, node: Node) -> None:
        """Moves a chain to the end of the line, from this node up."""
        while node is not self._root:
            if not node.locks:
                self._idle[node] = None
                self._idle.move_to_end(node)
            node = node.parent

    def _loosen(self, node: Node) -> None:
        """Takes a lock off a node, and off its parent if it was the last one."""
        node.locks -= 1
        while not node.locks:
            self._idle[node] = None
            self.num_evictable += len(node.blocks)
            node = node.parent
            node.locks -= 1

    def _forget(self, node: Node) -> None:
        for block in node.blocks:
            del self._nodes[block]
            self._own_locks.pop(block, None)
        if not node.locks:
            del self._idle[node]
            self.num_evictable -= len(node.blocks)
