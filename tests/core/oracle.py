"""A model small enough to be certain of, served through real block tables.

The executor keeps a paged memory of token ids. It writes each scheduled token to the slot that
the block table names, reads the whole context back through the table, and derives the next token
from what it read. A wrong table, a block shared by mistake, a skipped or repeated position or a
stale block changes the tokens, and the comparison with `expected_tokens` shows it.
"""

import random
from collections.abc import Callable

from minillm_serve.core import (
    PREFIX_CACHES,
    Admission,
    Batch,
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    EngineCore,
    FinishedStep,
    Request,
    SamplingParams,
    ScheduledSequence,
    SequenceOutput,
    Speculation,
    StepResult,
    SwapSpace,
)

VOCAB = 97


def next_token(tokens: list[int], index: int = 0) -> int:
    """A function of every token and its position, and of which answer of its request it is for."""
    return (_state(tokens) + index) % VOCAB


def expected_tokens(prompt: list[int], count: int, index: int = 0) -> list[int]:
    """What the oracle must generate, computed without any engine."""
    state, tokens = _state(prompt), list[int]()
    for _ in range(count):
        tokens.append((state + index) % VOCAB)
        state = _state(tokens[-1:], state)
    return tokens


def _state(tokens: list[int], state: int = 7) -> int:
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return state


def nothing(item: ScheduledSequence) -> tuple[int, ...]:
    """Guesses nothing; see `tests.core.guessing` for somebody who does."""
    return ()


def answer(
    read: list[int], drafts: tuple[int, ...], choose: Callable[[list[int]], int]
) -> SequenceOutput:
    """What follows tokens that end with drafts: as many of those as are right, and one token more.

    Args:
        read: the tokens, as they were read back.
        drafts: the last of them.
        choose: the token that follows some tokens.
    """
    known = len(read) - len(drafts)
    chosen = [choose(read[:end]) for end in range(known, len(read) + 1)]
    count = 0
    while count < len(drafts) and drafts[count] == chosen[count]:
        count += 1
    return SequenceOutput(tuple(chosen[: count + 1]), draft_token_ids=drafts)


def copy_blocks(sources, targets, moves) -> None:
    assert len({target for _, target in moves}) == len(moves), "a block is written twice"
    for target, block in [(target, list(sources[source])) for source, target in moves]:
        targets[target] = block


class OracleExecutor:
    def __init__(
        self, num_blocks: int, block_size: int, num_host_blocks: int = 0, guess=nothing
    ) -> None:
        self.block_size = block_size
        # -1 is what nobody has written: reading it gives a wrong token at once.
        self.memory = [[-1] * block_size for _ in range(num_blocks)]
        self.host = [[-1] * block_size for _ in range(num_host_blocks)]
        self.batches: list[Batch] = []
        self.guess = guess  # of a slice with room for drafts

    def with_drafts(self, item: ScheduledSequence) -> ScheduledSequence:
        """The slice with what is guessed, if there is room for a guess."""
        return item.with_drafts(self.guess(item)) if item.num_drafts else item

    def swap(self, out, back) -> None:
        """Copies blocks. What is read all lies there before anything is written, as on a device."""
        copy_blocks(self.memory, self.host, out)
        copy_blocks(self.host, self.memory, back)

    def copy(self, out, within, back) -> None:
        """All copies of a step, in their order."""
        self.swap(out, [])
        copy_blocks(self.memory, self.memory, within)
        self.swap([], back)

    def submit(self, batch: Batch) -> FinishedStep:
        self.batches.append(batch)
        self.copy(batch.blocks_to_swap_out, batch.blocks_to_copy, batch.blocks_to_swap_in)
        items = [self.with_drafts(item) for item in batch.scheduled]
        for item in items:
            tokens = [*item.sequence.token_ids[: item.known_end], *item.draft_token_ids]
            for position in range(item.start, item.end):
                block, row = self._slot(item.sequence.block_table, position)
                self.memory[block][row] = tokens[position]
        return FinishedStep(StepResult(tuple(self._output(item) for item in items)))

    def _slot(self, table: list[int], position: int) -> tuple[int, int]:
        return table[position // self.block_size], position % self.block_size

    def _output(self, item) -> SequenceOutput:
        if not item.samples:
            return SequenceOutput()
        read = []
        for position in range(item.end):
            block, row = self._slot(item.sequence.block_table, position)
            read.append(self.memory[block][row])
        index = item.sequence.index
        return answer(read, item.draft_token_ids, lambda tokens: next_token(tokens, index))


def make_engine(
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 16,
    max_model_len: int = 1000,
    num_host_blocks: int = 0,
    executor=None,
    scheduler=ContinuousScheduler,
    prefix_cache=None,
    guess=nothing,
    lengths=None,
    limits=None,
    door=lambda ours: ours,
    **options,
) -> EngineCore:
    """An engine on the oracle.

    `limits` are `Admission`'s, in whose place `door` may put another; `lengths` are
    `DraftLengths`, for which `guess` makes the drafts.
    """
    space = SwapSpace(num_host_blocks) if num_host_blocks else None
    if isinstance(prefix_cache, str):
        prefix_cache = PREFIX_CACHES[prefix_cache](block_size)
    blocks = BlockManager(BlockPool(num_blocks), block_size, space, prefix_cache)
    admission = Admission(
        max_model_len=max_model_len,
        pool_tokens=blocks.capacity,
        vocab_size=VOCAB,
        **(limits or {}),
    )
    admission = door(admission)
    policy = scheduler(
        blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_len=admission.max_len,
    )
    policy.speculation = Speculation(lengths) if lengths is not None else None
    executor = executor or OracleExecutor(num_blocks, block_size, num_host_blocks, guess)
    options.setdefault("debug_invariants", True)
    return EngineCore(policy, executor, admission, **options)


def request(
    name: str,
    prompt: list[int],
    max_tokens: int | None = 8,
    *,
    priority: int = 0,
    deadline: float | None = None,
    cache_salt: str | None = None,
    **params,
) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=tuple(prompt),
        priority=priority,
        deadline=deadline,
        cache_salt=cache_salt,
        params=SamplingParams(max_tokens=max_tokens, temperature=0, **params),
    )


def run(engine: EngineCore, *, max_steps: int = 10_000) -> dict[str, list[int]]:
    """Runs until idle; the tokens of each request."""
    tokens: dict[str, list[int]] = {}
    for _ in range(max_steps):
        if not engine.has_unfinished:
            return tokens
        engine.flush()
        for update in engine.step():
            tokens.setdefault(update.request_id, []).extend(update.new_token_ids)
    raise AssertionError(f"still busy after {max_steps} steps")


def prompts(count, longest=30, seed=0):
    """Random prompts of 1..longest tokens; the same for a seed."""
    draw = random.Random(seed)
    return [[draw.randrange(VOCAB) for _ in range(draw.randint(1, longest))] for _ in range(count)]
