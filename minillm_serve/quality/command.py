"""`minillm-serve quality`: what fewer bits cost, in one table."""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minillm_serve.cli_options import parse_bytes
from minillm_serve.models.schemes import SCHEMES
from minillm_serve.quality.measure import Plan, Setting, check_settings, engine, measure_all
from minillm_serve.quality.studies import Studies
from minillm_serve.quality.table import kinds_table, table
from minillm_serve.quality.tasks import read_text
from minillm_serve.quality.weights import Grid
from minillm_serve.runtime.kv_quantizer import KV_CACHE_DTYPES
from minillm_serve.sim.units import format_bytes
from minillm_serve.stamp import stamp

#: What is measured if nothing is asked for.
USUAL = (
    Setting("int8"),
    Setting("fp8"),
    Setting(quantization="int8"),
    Setting(quantization="int4"),
    Setting("int8", "int4"),
)
GRIDS = (Grid(4, 32), Grid(4, 64), Grid(3, 64))
#: Options that studies have no use for.
NO_STUDY = ("kv_cache_dtype", "quantization", "text_tokens", "prompts", "answer_tokens", "memory",
            "context")  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Measures a model in fewer bits beside itself; prints tables, and writes a record.

    Raises:
        ValueError: an option is not usable.
        SystemExit: the options do not go together.
    """
    options = _parse(argv)
    quick, text = options.quick, read_text(options.text)
    plan = Plan(
        text,
        text_tokens=options.text_tokens or (256 if quick else 4096),
        prompts=options.prompts or (1 if quick else 4),
        answer_tokens=options.answer_tokens or (16 if quick else 64),
        memory=options.memory,
        context=options.context,
    )
    common = {"dtype": options.dtype, "device": options.device}
    asked = [] if options.studies else settings(options)
    check_settings(options.model, asked, **common)
    if options.studies:
        records = _study(options.model, plan, 64 if quick else options.study_tokens, common)
    else:
        records = iter([_measure(options.model, plan, asked, common)])
    for record in records:  # whatever is there if it is stopped half-way
        if options.output:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(record, indent=1) + "\n")
    if options.output:
        print(f"written to {options.output}")
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(argv)
    if options.studies:
        given = [name for name in NO_STUDY if getattr(options, name) != parser.get_default(name)]
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            parser.error(f"{names} with --studies, which have no use for it: leave it out")
        if options.dtype not in ("auto", "float32"):
            parser.error(f"--dtype {options.dtype} with --studies, which compute in float32")
        options.dtype = "float32"
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minillm-serve quality",
        description="Reads a text and answers questions with fewer bits and without, and tells "
        "what changed. Without --kv-cache-dtype and --quantization it tries the usual ones.",
    )
    add = parser.add_argument
    add("--model", default="smollm2-135m", help="(default: %(default)s)")
    add("--dtype", default="auto", help="of the reference, and of what is not quantized")
    add("--device", default="auto", help="auto, cpu or cuda")
    add("--kv-cache-dtype", nargs="+", default=[], choices=KV_CACHE_DTYPES, metavar="DTYPE",
        help="auto, int8, fp8; several are tried one after the other")  # fmt: skip
    add("--quantization", nargs="+", default=[], choices=["none", *SCHEMES], metavar="SCHEME",
        help="none, int8, int4; each with each of --kv-cache-dtype")  # fmt: skip
    add("--text", type=Path, help="a file to read instead of the one that comes with the package")
    add("--text-tokens", type=_positive, help="of the text, at most (4096)")
    add("--prompts", type=_positive, help="questions of each of three kinds (4)")
    add("--answer-tokens", type=_positive, help="of an answer, at most (64)")
    add("--memory", type=parse_bytes, default=2**30,
        help="for weights and KV together: how many users fit? (1GiB)")  # fmt: skip
    add("--context", type=_positive, default=1024, help="tokens of a user (%(default)s)")
    add("--studies", action="store_true",
        help="instead: bit by bit, by layer, by head, and round-to-nearest beside AWQ and "
        "GPTQ; some two hundred readings")  # fmt: skip
    add("--study-tokens", type=_positive, default=512, help="read in each (%(default)s)")
    add("--quick", action="store_true", help="less of everything: a trial, not a measurement")
    add("--output", type=Path, help="write a JSON record")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def settings(options: argparse.Namespace) -> list[Setting]:
    """Every KV dtype with every scheme that was asked for; the usual ones if none was."""
    if not options.kv_cache_dtype and not options.quantization:
        return list(USUAL)
    schemes = [None if name == "none" else name for name in options.quantization or ["none"]]
    asked = [Setting(kind, s) for s in schemes for kind in options.kv_cache_dtype or ["auto"]]
    return [setting for setting in asked if setting != Setting()]


def _measure(
    model: str, plan: Plan, asked: Sequence[Setting], options: dict[str, Any]
) -> dict[str, Any]:
    reference, rows = measure_all(model, asked, plan, **options)
    record = {
        "stamp": stamp(seed=0, model=model),
        "title": "What fewer bits cost",
        "text_tokens": len(reference.text.token_ids),
        "prompts_of_a_kind": plan.prompts,
        "answer_tokens": plan.answer_tokens,
        "memory": plan.memory,
        "context": plan.context,
        "rows": [row.record() for row in rows],
    }
    _print(record)
    return record


def _print(record: dict[str, Any]) -> None:
    print(f"{record['text_tokens']} tokens of text; KL(reference || row) in nats")
    print(table(record["rows"]))
    room = format_bytes(record["memory"], 1)
    print(f"users: conversations of {record['context']:,} tokens in {room} less the weights\n")
    count, tokens = record["prompts_of_a_kind"], record["answer_tokens"]
    print(f"greedy answers to {count} questions of a kind, up to {tokens} tokens each")
    print(kinds_table(record["rows"]))
    print("agreed: tokens before an answer's first difference from the reference's")


def _study(
    model: str, plan: Plan, tokens: int, options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    llm = engine(model, Setting(), **options)
    studies = Studies(llm, list(llm.tokenizer.encode(plan.text)), tokens)
    found: dict[str, Any] = {
        "stamp": stamp(seed=0, model=model),
        "title": "Where fewer bits hurt",
        "tokens": tokens,
        "learned_tokens": len(studies.learned),
    }
    for name, rows in (
        ("kv_ways", studies.kv_ways()),
        ("bits", studies.bits()),
        ("layers", studies.layers()),
        ("algorithms", studies.algorithms(GRIDS)),
        ("heads", studies.heads()),
    ):
        found[name] = list(rows)
        print(f"{name}: {len(found[name])} readings", flush=True)
        yield found
