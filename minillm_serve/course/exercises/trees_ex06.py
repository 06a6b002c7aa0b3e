"""ex06's trees: how a learner's tree grows, whether it holds together, and a drawing of it."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

from minillm_serve.course.exercises.books_ex06 import Books
from minillm_serve.course.exercises.exercise import Case, CheckFailed
from minillm_serve.course.exercises.scripts_ex06 import PLAIN, named

#: More nodes than any case has: a tree that bites its tail is left there.
MOST = 500


def same_key(tree_class: Any, case: Case) -> bool:
    """The learner's side: whether two prompts have one key, for their first blocks."""
    tree = tree_class(case["block_size"])
    return tree.key(list(case["one"])) in {tree.key(list(case["other"]))}


def same_first_block(case: Case) -> bool:
    """Whether they should."""
    size = case["block_size"]
    return bool(case["one"][:size] == case["other"][:size])


def key_mistake(case: Case, expected: bool, got: Any) -> str | None:
    """What comes of it."""
    if got is True and not expected:
        return (
            "they begin with different first blocks, and have the same key: whoever looks for one "
            "finds the other"
        )
    return "their first block is the same, and not its key" if got is False and expected else None


def tree_case(
    *prompts: tuple[list[int], list[int]], locked: dict[int, int] | None = None, size: int = 4
) -> Case:
    """A case.

    Args:
        prompts: tokens, and blocks for all that they fill; added one after the other.
        locked: the number of a prompt -> how often all that it is found in is locked then.
        size: tokens a block.
    """
    return {"block_size": size, "prompts": list(prompts), "locked": locked or {}}


def described(case: Case) -> str:
    """The prompts in one line."""
    shown = []
    for number, (tokens, blocks) in enumerate(case["prompts"]):
        times = case["locked"].get(number, 0)
        shown.append(f"{tokens} in {blocks}" + (f", locked {times} times" if times else ""))
    return f"block_size={case['block_size']}; added: {'; '.join(shown)}"


def grow(tree_class: Any, case: Case) -> list[dict[str, Any]]:
    """The learner's side: finds each prompt, hangs the rest below, and takes the tree apart."""
    tree, log = tree_class(case["block_size"]), []
    for number, (tokens, blocks) in enumerate(case["prompts"]):
        node, found = tree.find(tuple(tokens), PLAIN)
        entry = {"found": found, "ends": _path(node), "tree": []}
        log.append(entry)
        if len(found) < len(blocks):
            rest = tokens[len(found) * case["block_size"] :]
            node = tree.add(node, list(rest), list(blocks[len(found) :]))
        for _ in range(case["locked"].get(number, 0)):
            _lock(node)
        entry["tree"] = [_noted(tree, one) for one in walk(tree.roots[PLAIN])]
    return log


def _lock(node: Any) -> None:
    while node.parent is not None:
        node.locks += 1
        node = node.parent


def _path(node: Any) -> list[int]:
    """Blocks from the root to the end of a node."""
    blocks: list[int] = []
    for _ in range(MOST):
        if node.parent is None:
            break
        blocks, node = [*node.blocks, *blocks], node.parent
    return blocks


def walk(root: Any) -> Iterator[Any]:
    """Every node below a root, from above."""
    waiting = list(root.children.values())
    for _ in range(MOST):
        if not waiting:
            return
        node = waiting.pop(0)
        yield node
        waiting += node.children.values()


def _noted(tree: Any, node: Any) -> dict[str, Any]:
    return {
        "path": _path(node),
        "blocks": list(node.blocks),
        "tokens": list(node.tokens),
        "locks": node.locks,
        "mapped": [block for block in node.blocks if tree.nodes.get(block) is node],
        "under": any(node is child for child in node.parent.children.values()),
        "keyed": node.parent.children.get(tree.key(node.tokens)) is node,
    }


def judge_growth(case: Case, got: Any) -> None:
    """Every prompt is found as far as it is there, and the tree holds what was added.

    Raises:
        CheckFailed: naming the prompt at which it went wrong.
    """
    try:
        _judge_growth(case, got)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckFailed("the log of the tree is not the one that was kept") from error


def _judge_growth(case: Case, got: Any) -> None:
    books = Books(case["block_size"])
    for number, (tokens, blocks) in enumerate(case["prompts"]):
        before, entry = f"prompt {number + 1}, {tokens}", got[number]
        wanted = books.find(tokens, PLAIN)
        if entry["found"] != wanted:
            raise CheckFailed(
                f"{before}: find returns the wrong blocks", expected=wanted, got=entry["found"]
            )
        if entry["ends"] != wanted:
            raise CheckFailed(
                f"{before}: find returns a node that does not end where the prompt parts from the "
                "tree: a run that is longer than what matches is split",
                expected=f"a node whose last block is {wanted[-1]}" if wanted else "the root",
                got=f"one that ends after {entry['ends']}",
            )
        books.publish(tokens, blocks, len(tokens), PLAIN)
        for _ in range(case["locked"].get(number, 0)):
            books.lock(blocks[-1])
        _judge_tree(books, entry["tree"], before)


def _judge_tree(books: Books, nodes: list[dict[str, Any]], before: str) -> None:
    seen = [block for node in nodes for block in node["blocks"]]
    if lost := sorted(set(books.entries) - set(seen)):
        raise CheckFailed(
            f"{before}: block {lost[0]} cannot be reached from the root any more. Was it put where "
            "something else was, or left out when a run was cut?",
            expected=sorted(books.entries),
            got=sorted(seen),
        )
    if len(seen) != len(books.entries):
        raise CheckFailed(
            f"{before}: blocks are in the tree twice", expected=sorted(books.entries), got=seen
        )
    for node in nodes:
        _judge_node(books, node, before)


def _judge_node(books: Books, node: dict[str, Any], before: str) -> None:
    run, last = node["blocks"], node["blocks"][-1]
    wanted = list(books.entries[last].prefix[1][-len(run) * books.block_size :])
    if node["tokens"] != wanted:
        raise CheckFailed(
            f"{before}: the run {run} has other tokens", expected=wanted, got=node["tokens"]
        )
    if node["path"] != books.chain(last) or not node["under"]:
        raise CheckFailed(
            f"{before}: the run {run} hangs in the wrong place: `parent` and `children` of both "
            "ends must say the same",
            expected=books.chain(last),
            got=node["path"],
        )
    if not node["keyed"]:
        raise CheckFailed(f"{before}: the run {run} is not found under the key of its tokens")
    if node["mapped"] != run:
        raise CheckFailed(
            f"{before}: self.nodes does not say that {run} are in this node",
            expected=run,
            got=node["mapped"],
        )
    for block in run:
        locks = sum(books.entries[b].locks for b in [block, *books.behind(block)])
        if node["locks"] != locks:
            raise CheckFailed(
                f"{before}: the run {run} has the wrong number of locks. Whoever locked a run that "
                "is cut in two needs both parts of it",
                expected=locks,
                got=node["locks"],
            )


class Drawn:
    """A cache's trees as text: runs of blocks, beneath what they share."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    def __repr__(self) -> str:
        """One line a run."""
        lines = []
        for namespace, root in self.cache.roots.items():
            if root.children:
                lines += [f"Namespace({named(namespace)})", *_branches(root, "")]
        return "\n".join(lines) or "nothing is cached"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def _branches(node: Any, indent: str) -> Iterator[str]:
    children = list(node.children.values())
    for child in children:
        last = child is children[-1]
        locks = f"   locks {child.locks}" if child.locks else ""
        corner, line = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield f"{indent}{corner}{child.blocks} used {child.used}{locks}"
        yield from _branches(child, indent + line)


def draw(cache: Any) -> Drawn:
    """A cache's trees, to look at."""
    return Drawn(cache)
