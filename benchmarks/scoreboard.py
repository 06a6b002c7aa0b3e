"""`minillm-serve bench scoreboard`: measures the course's rows and writes them down."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from minillm_serve.course.techniques import TECHNIQUES, run_row
from minillm_serve.course.trace import SEED, describe_trace, make_trace
from minillm_serve.stamp import stamp

RESULTS = Path(__file__).parent / "results" / "scoreboard.json"


def main(argv: Sequence[str]) -> int:
    """All rows in one run, on one machine: a row measured elsewhere would say nothing."""
    parser = argparse.ArgumentParser(prog="minillm-serve bench scoreboard")
    parser.add_argument("--output", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--short", action="store_true", help="a shorter trace, to try it out")
    options = parser.parse_args(argv)
    rows = []
    for name in TECHNIQUES:
        rows.append(run_row(name, short=options.short))
        print(f"{name:20} {rows[-1]['output_tok_s']:7.1f} output tok/s", flush=True)
    trace = describe_trace(make_trace(short=options.short))
    board = {"stamp": stamp(seed=SEED, trace=trace), "rows": rows}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(board, indent=1) + "\n")
    print(f"written to {options.output}")
    return 0
