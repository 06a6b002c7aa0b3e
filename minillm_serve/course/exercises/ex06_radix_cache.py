"""ex06: a prefix cache as a radix tree (slot `prefix_cache`)."""

from __future__ import annotations

from minillm_serve.course.exercises import answers_ex06 as answers
from minillm_serve.course.exercises import cases_ex06 as cases
from minillm_serve.course.exercises import engine_ex06 as engine
from minillm_serve.course.exercises import keeping_ex06 as keeping
from minillm_serve.course.exercises import scripts_ex06 as scripts
from minillm_serve.course.exercises import trees_ex06 as trees
from minillm_serve.course.exercises.exercise import Check, Exercise, Limits, Part


def _compared(name: str, made: cases.Maker) -> Check:
    return Check(name, 1, made, expected=answers.common_blocks, explain=answers.common_mistake)


def _grown(name: str, points: float, made: cases.Maker) -> Check:
    return Check(
        name,
        points,
        made,
        run=trees.grow,
        judge=trees.judge_growth,
        describe=trees.described,
    )


def _scripted(name: str, points: float, made: cases.Maker) -> Check:
    return Check(
        name,
        points,
        made,
        run=scripts.play,
        judge=answers.judge_script,
        describe=scripts.described,
    )


def _served(name: str, points: float, made: cases.Maker) -> Check:
    return Check(
        name,
        points,
        made,
        run=engine.serve,
        judge=engine.judge_service,
        describe=engine.described,
    )


COMMON = Part(
    id="common",
    answer="common_blocks",
    checks=(
        _compared("counts whole blocks from the start", cases.same_cases),
        _compared("stops at the first block that differs", cases.parting_cases),
        _compared("leaves out a block that is not whole", cases.partial_cases),
    ),
    hints=(
        "Take block after block: the tokens from start to start + block_size of both. When do you "
        "stop?",
        "Whole blocks of both: range(0, min(len(one), len(other)) - block_size + 1, block_size). "
        "Return at the first that differs; behind the loop, return how many there were.",
    ),
)

TREE = Part(
    id="tree",
    answer="Tree",
    checks=(
        Check(
            "gives every first block a key of its own",
            1,
            cases.key_cases,
            run=trees.same_key,
            expected=trees.same_first_block,
            explain=trees.key_mistake,
        ),
        _grown("finds what is there, and nothing else", 1, cases.sibling_cases),
        _grown("cuts a run where a prompt parts from it, or ends", 2, cases.fork_cases),
        _grown("keeps the locks of both parts", 1, cases.lock_split_cases),
    ),
    hints=(
        "key: dicts compare keys with ==, so a key that holds all tokens of the first block is "
        "never taken for another. Lists cannot be keys; tuples can.",
        "split: self.add(node.parent, ...) makes the upper part, and puts it where node was, since "
        "both begin with the same block. Then node gets what is left, and upper as its parent.",
        "split: who locks node locks all above it, so upper gets as many locks, and the same "
        "`used`. And upper.children[self.key(node.tokens)] = node, with the tokens that node has "
        "left.",
        "find: count = common_blocks(child.tokens, rest, self.block_size). If that is less than "
        "len(child.blocks), the child to go on with is self.split(child, count). Then cut count "
        "blocks off rest. The loop ends where rest finds no child.",
    ),
)

INDEX = Part(
    id="index",
    answer="Index",
    checks=(
        _scripted("finds what was published, as far as it is the same", 1, cases.match_cases),
        _scripted("finds whole blocks only", 1, cases.whole_cases),
        _scripted("publishes what is written, whole blocks only", 1, cases.written_cases),
        _scripted("keeps one entry for the same tokens", 1, cases.twice_cases),
        _scripted("finds nothing of another namespace", 1, cases.namespace_cases),
    ),
    hints=(
        "match is find, use and return. publish begins with a find as well: what is found is "
        "cached already, and what is left of the table is new.",
        "publish: num_written // self.block_size blocks are whole. Cut the tokens to these, find "
        "them, and new is block_table[len(found) : whole], as a list.",
        "publish: look for a block of new that is in self.nodes before anything is added. Then, if "
        "new is not empty, self.add(node, the tokens of new, new); use the last node; return new.",
    ),
)

KEEPER = Part(
    id="keeper",
    answer="Keeper",
    checks=(
        _scripted("locks a block and all before it, and counts", 2, keeping.lock_cases),
        _scripted("refuses what cannot be locked or unlocked", 1, keeping.refusal_cases),
    ),
    hints=(
        "Locks are counted twice: self.held says how many are on this very block, and "
        "node.locks how many are on a run or behind it.",
        "lock: a run has one number of locks, so cut it behind the block first, if the block is "
        "not its last: node.blocks.index(block) + 1 blocks stay above.",
        "lock: 1 more for each node of self.chain(...), and for self.held[block]. unlock: the same "
        "with 1 less, and then use; and if self.held[block] is 0, InvariantViolation instead.",
    ),
)

FORGET = Part(
    id="forget",
    answer="Forgetful",
    checks=(
        _scripted("forgets a block and all that is behind it", 1, keeping.withdrawn_cases),
        _scripted("takes the locks of the forgotten off the rest", 1, keeping.unheld_cases),
    ),
    hints=(
        "If the block is not the first of its run, split the run before it. Then the node of that "
        "block, and all below it, are what has to go.",
        "Take the node out of its parent's children, and its locks off all above it: as many as it "
        "has, so look at them before you change them.",
        "Then go down with a list that grows while you go over it: below = [node]; for each one in "
        "it, gone += one.blocks and below += one.children.values(). At last del self.nodes[...] "
        "and self.held[...] for each block of gone.",
    ),
)

CACHE = Part(
    id="cache",
    answer="MyRadixCache",
    checks=(
        _scripted("forgets the leaf that was used longest ago", 1, keeping.lru_cases),
        _scripted("forgets chains from their ends, for good", 1, keeping.leaf_cases),
        _scripted("keeps what is locked", 1, keeping.kept_cases),
        _scripted("keeps its books over hundreds of calls", 1, keeping.random_cases),
        _served("computes a prompt once, in the engine", 1, engine.twin_cases),
        _served("gives a crowd the tokens that they get without it", 2, engine.crowd_cases),
    ),
    hints=(
        "Leaves are nodes without children and without locks; self.nodes.values() has all nodes, "
        "some of them more than once.",
        "min(leaves, key=lambda node: node.used) goes first, and of it the last block: "
        "self.forget(leaf.blocks[-1]) returns it in a list.",
        "After each block look again, since its parent may be a leaf now. It ends after count "
        "blocks, or when there is no leaf.",
    ),
)

EXERCISE = Exercise(
    id="ex06",
    name="radix_cache",
    title="A tree of everything that was said before",
    chapter="06",
    parts=(COMMON, TREE, INDEX, KEEPER, FORGET, CACHE),
    slot="prefix_cache",
    hidden_points=8,
    limits=Limits(seconds=30),
)
