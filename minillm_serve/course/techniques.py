"""The scoreboard's rows: ways of serving one trace within one and the same KV memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from minillm_serve import LLM
from minillm_serve.course.replay import Served, figures, replay, replay_one_at_a_time
from minillm_serve.course.trace import KV_TOKENS, MAX_MODEL_LEN, User, make_trace
from minillm_serve.runtime.kv_quantizer import bytes_per_number

BLOCK_SIZE = 16
#: Bytes of a key or value in int8, its share of a scale included, over those in float32. (D = 64.)
INT8_SHARE = bytes_per_number(torch.int8, 64) / 4
#: Rows of the batches that are compared in chapter 04.
ROWS = 8


@dataclass(frozen=True, slots=True)
class Technique:
    """A row before it is measured."""

    chapter: int
    title: str
    serve: Callable[[list[User]], Served]
    note: str


def one_at_a_time(users: list[User]) -> Served:
    """Serves the trace by transformers' `generate`, one by one."""
    import torch
    from transformers import AutoModelForCausalLM

    from minillm_serve.models.resolve import resolve_model

    path = resolve_model("smollm2-135m")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    replay_one_at_a_time(model, [_warm_up(users)])
    return replay_one_at_a_time(model, users)


def engine(**settings: Any) -> Callable[[list[User]], Served]:
    """Serves the trace by our engine, with these arguments of `LLM`.

    In blocks of 16 and without a prefix cache, unless they say otherwise; with room for the whole
    crowd, so that memory alone is the limit.
    """
    size = settings.get("block_size", BLOCK_SIZE)
    room = {"block_size": size, "num_blocks": KV_TOKENS // size, "max_num_seqs": 32}
    given = {**room, "prefix_cache": None, **settings}

    def serve(users: list[User]) -> Served:
        llm = LLM(max_model_len=MAX_MODEL_LEN, **given)
        replay(llm, [_warm_up(users)])
        llm.reset_prefix_cache()  # nobody gains from the first user's having come twice
        return replay(llm, users)

    return serve


def over_http(**settings: Any) -> Callable[[list[User]], Served]:
    """The same engine, behind the server; these arguments are `LLM`'s."""
    room = {"block_size": BLOCK_SIZE, "num_blocks": KV_TOKENS // BLOCK_SIZE, "max_num_seqs": 32}

    def serve(users: list[User]) -> Served:
        from minillm_serve.course.replay_http import replay_http

        llm = LLM(max_model_len=MAX_MODEL_LEN, **{**room, **settings})
        replay(llm, [_warm_up(users)])
        llm.reset_prefix_cache()
        return replay_http(llm, users)

    return serve


TECHNIQUES = {
    "00_one_at_a_time": Technique(
        0,
        "one request at a time (transformers)",
        one_at_a_time,
        "Everybody waits for all who came before; the KV cache is thrown away after each.",
    ),
    "01_reserve": Technique(
        1,
        "reserve the longest conversation",
        # One block is a whole conversation of the greatest length: nothing is paged yet.
        engine(block_size=MAX_MODEL_LEN, max_num_seqs=KV_TOKENS // MAX_MODEL_LEN),
        "The KV memory divided by the longest conversation says how many run at once; "
        "most of what each reserves stays empty.",
    ),
    "02_paged": Technique(
        2,
        "paged: blocks of 16 by need",
        engine(),
        "The same memory holds several times as many people, so nobody waits long to begin. They "
        "share every step, so each of their tokens takes longer; and the batch now has more places "
        "(32 instead of 4) than people come.",
    ),
    "04_static": Technique(
        4,
        "static batches of 8",
        engine(scheduler="static", max_num_seqs=ROWS),
        "A batch begins when eight have come, and ends with its longest answer; whoever comes "
        "meanwhile waits for both.",
    ),
    "04_dynamic": Technique(
        4,
        "dynamic batches of up to 8, after 0.1 s at most",
        engine(scheduler="dynamic", max_num_seqs=ROWS, max_queue_delay=0.1),
        "Nobody waits long for a batch to fill, so batches begin half empty; the longest answer "
        "still holds the door shut.",
    ),
    "04_continuous": Technique(
        4,
        "continuous batching of up to 8",
        engine(max_num_seqs=ROWS),
        "Whoever ends gives the place to whoever waits, at the very next step. Row 02 differs in "
        "having 32 places: it schedules in the same way.",
    ),
    "05_chunked": Technique(
        5,
        "chunked prefill, 64 tokens a step",
        engine(max_num_batched_tokens=64),
        "No step computes more than 64 tokens, so nobody's next token waits for somebody else's "
        "whole prompt. But these users' prompts are all below 160 tokens: there is little to wait "
        "for, and the row shows the price alone, prompts that take more steps to be read.",
    ),
    "06_prefix": Technique(
        6,
        "prefix cache (hash)",
        engine(prefix_cache="hash"),
        "No two of these users begin alike, so nothing is ever found: this row shows what looking "
        "and keeping cost. It differs from row 02 by the cache alone.",
    ),
    "07_speculation": Technique(
        7,
        "speculation: n-gram drafts, as many as pay",
        engine(speculative_config="ngram"),
        "Random prompts hold nothing to copy; what is copied are answers that repeat themselves. "
        "Each step has as many drafts as pay by what steps take on this machine, or none. It "
        "differs from row 02 by the drafts alone.",
    ),
    "08_kv_int8": Technique(
        8,
        "KV cache in int8, in the same bytes",
        engine(kv_cache_dtype="int8", num_blocks=int(KV_TOKENS / INT8_SHARE) // BLOCK_SIZE),
        "The same bytes hold nearly four times as many tokens as in float32 (a server with 16 bits "
        "would gain a factor of two), so nobody waits for blocks. Codes and scales have to be made "
        "and read. It differs from row 02 by that alone.",
    ),
    "09_small_batch": Technique(
        9,
        "at most 4 at once",
        engine(max_num_seqs=4),
        "The knob turned towards those who are being answered: each step has few rows, so tokens "
        "come sooner, and whoever is not among the four waits. It differs from row 02 by the limit "
        "alone.",
    ),
    "10_http": Technique(
        10,
        "the complete engine, over HTTP",
        over_http(prefix_cache="hash"),
        "The engine of row 06 behind the server, in a process that its users share: each is a "
        "client with a connection, and the times are those that clients see. The difference is "
        "what HTTP, JSON and two event loops cost.",
    ),
}


def run_row(name: str, *, short: bool = False) -> dict[str, Any]:
    """Serves the trace by one technique, here and now.

    Args:
        name: a key of `TECHNIQUES`.
        short: a shorter trace, for a notebook cell; not comparable with the committed rows.

    Returns:
        A row of the scoreboard.

    Raises:
        ValueError: there is no such technique.
    """
    if name not in TECHNIQUES:
        raise ValueError(f"no technique {name!r}: choose from {', '.join(TECHNIQUES)}")
    technique = TECHNIQUES[name]
    served = technique.serve(make_trace(short=short))
    title = f"{technique.title} (short trace)" if short else technique.title
    row = {"id": name, "chapter": technique.chapter, "technique": title}
    return {**row, **figures(served), "note": technique.note}


def _warm_up(users: list[User]) -> User:
    return User(0.0, users[0].prompt, 2)
