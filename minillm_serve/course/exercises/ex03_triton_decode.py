"""ex03: paged decode attention in Triton, in three steps (slot `attention`)."""

from __future__ import annotations

from minillm_serve.course.exercises import answers_ex03 as answers
from minillm_serve.course.exercises import cases_ex03 as cases
from minillm_serve.course.exercises import runs_ex03 as runs
from minillm_serve.course.exercises.exercise import GIB, Case, Check, Exercise, Limits, Part
from minillm_serve.course.exercises.maps_ex03 import judge_far, judge_map, judge_reads


def _tokens(case: Case) -> list[list[int]]:
    from minillm_serve.course.exercises.tiny_engine import generate

    return generate(case["prompts"], case["max_tokens"], case["seed"])


def _tile_check(name: str, made: cases.Maker) -> Check:
    return Check(
        name,
        1,
        made,
        run=runs.run_tiles,
        expected=answers.tiles,
        explain=answers.tile_mistake,
        describe=cases.described,
    )


def _fold_check(name: str, made: cases.Maker) -> Check:
    return Check(
        name,
        1,
        made,
        run=runs.run_folds,
        expected=answers.folds,
        explain=answers.fold_mistake,
        describe=cases.described_fold,
        rtol=1e-4,
        atol=1e-4,
    )


def _decode_check(name: str, made: cases.Maker) -> Check:
    return Check(
        name,
        1,
        made,
        run=runs.run_decode,
        expected=answers.decoded,
        explain=answers.decode_mistake,
        describe=cases.described,
        rtol=1e-4,
        atol=1e-4,
    )


TILE = Part(
    id="tile",
    answer="load_tile",
    checks=(
        _tile_check("loads the rows of a block, of the head that it is given", cases.full_tiles),
        _tile_check("gives 0 where a block holds no token yet", cases.part_tiles),
        _tile_check("pads a head dim that is no power of two with 0", cases.odd_tiles),
        Check(
            "reads the slots that hold tokens, and no other",
            1,
            cases.one_tile,
            run=runs.run_tile_map,
            judge=judge_map,
            describe=cases.described,
        ),
        Check(
            "finds a block that lies 2^31 elements into the cache",
            1,
            cases.far_blocks,
            run=runs.run_far_tile,
            judge=judge_far,
            describe=lambda case: "block 8 of a cache with 2^28 elements between blocks, float16",
        ),
    ),
    hints=(
        "A tile of pointers is made of three things: where the block begins, a column of slots "
        "and a row of d. Adding a column and a row gives a rectangle.",
        "slot = tl.arange(0, P), d = tl.arange(0, D_PADDED); pointers are cache_ptr + (the block's "
        "offset) + slot[:, None] * stride_slot + d[None, :]. Two conditions decide which lanes "
        "may load.",
        "mask = (slot < kept)[:, None] & (d < D)[None, :]; tl.load(pointers, mask=mask, other=0.0)"
        ".to(tl.float32); and block.to(tl.int64) before it is multiplied by stride_block.",
    ),
)

FOLD = Part(
    id="fold",
    answer="fold",
    checks=(
        _fold_check("weighs the values of one tile by e^score", cases.single_fold),
        _fold_check("shrinks what was summed when a higher score comes", cases.rising_folds),
        _fold_check("takes scores of any size", cases.loud_folds),
        _fold_check("gives no weight to a score of -inf", cases.masked_folds),
    ),
    hints=(
        "Everything that was summed so far was weighed against the old highest score. By which "
        "factor is it too large when the highest score rises from m to m'?",
        "By e^(m' - m). So multiply total and acc by e^(m - m'), and weigh the new tile by "
        "e^(score - m').",
        "top = tl.maximum(highest, tl.max(scores, axis=1)); shrink = tl.exp(highest - top); "
        "weights = tl.exp(scores - top[:, None]); then total * shrink + tl.sum(weights, axis=1), "
        "and acc * shrink[:, None] + tl.dot(weights, v).",
    ),
)

DECODE = Part(
    id="decode",
    answer="paged_decode",
    checks=(
        _decode_check("attends to sequences that end anywhere in a block", cases.ragged_launches),
        _decode_check("gives each query head the KV head of its group", cases.grouped_launches),
        _decode_check("takes head dims that are no powers of two", cases.odd_launches),
        Check(
            "reads the slots of its sequences, and no other",
            2,
            cases.mapped_launches,
            run=runs.run_decode_map,
            judge=judge_map,
            describe=cases.described,
        ),
        Check(
            "reads each key and each value once, for all query heads of the group",
            1,
            cases.mapped_launches,
            run=runs.run_decode_reads,
            judge=judge_reads,
            describe=cases.described,
        ),
        Check(
            "writes in the real engine what the engine writes by itself",
            2,
            cases.engine_runs,
            run=runs.run_engine,
            expected=_tokens,
        ),
    ),
    hints=(
        "One program: load the query heads of the group as one tile; then, block by block, load "
        "keys and values, work out the scores and fold them in; at the end divide and store.",
        "scores = tl.dot(q, tl.trans(k)) * scale has shape [ROWS, P]. Positions past the end have "
        "keys of 0, and so a score of 0 and a weight of e^0: what must their score be instead?",
        "for start in range(0, length, P): the block is tl.load(table_ptr + sequence * "
        "stride_table + start // P), kept is length - start; scores = tl.where((slot < length - "
        "start)[None, :], scores, -inf). After the loop acc / total[:, None], with q's mask.",
    ),
)

EXERCISE = Exercise(
    id="ex03",
    name="triton_decode",
    title="Paged attention, a kernel",
    chapter="03",
    parts=(TILE, FOLD, DECODE),
    slot="attention",
    hidden_points=8,
    limits=Limits(seconds=180, memory=4 * GIB),
)
