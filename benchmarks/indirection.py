"""`minillm-serve bench indirection`: attention in blocks of 1 to 256, beside contiguous memory."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import parser, positive
from minillm_serve.course.chapter02.indirection import (
    BLOCK_SIZES,
    CONTIGUOUS,
    Times,
    make_tokens,
    measure,
    ratios,
)
from minillm_serve.runtime.attention.registry import BACKENDS
from minillm_serve.stamp import stamp


def main(argv: Sequence[str]) -> int:
    """Times one layer of decode attention for 64 sequences of 64..440 tokens, layout by layout."""
    options = parser("indirection", __doc__)
    options.add_argument("--batch", type=positive, default=64, help="sequences (%(default)s)")
    options.add_argument("--shortest", type=positive, default=64, help="tokens (%(default)s)")
    options.add_argument("--longest", type=positive, default=440, help="tokens (%(default)s)")
    options.add_argument("--block-sizes", type=positive, nargs="+", default=list(BLOCK_SIZES))
    options.add_argument("--backends", nargs="+", default=["cpu", "torch"], choices=list(BACKENDS))
    options.add_argument("--calls", type=positive, default=20, help="calls a run (%(default)s)")
    options.add_argument("--device", default="cpu", help="%(default)s, or cuda")
    chosen = options.parse_args(argv)
    tokens = make_tokens(chosen.batch, chosen.shortest, chosen.longest, device=chosen.device)
    times = measure(
        tokens,
        backends=chosen.backends,
        block_sizes=chosen.block_sizes,
        rounds=chosen.repeat,
        calls=chosen.calls,
    )
    title = (
        f"Decode attention, one layer, B={chosen.batch}, "
        f"{chosen.shortest}..{chosen.longest} tokens, fp32, {chosen.device}"
    )
    print(title)
    for name, found in ratios(times).items():
        base = min(times[name][CONTIGUOUS])
        print(f"  {name}: {base:.2f} ms in contiguous memory")
        for size, ratio in found.items():
            print(f"    blocks of {size:>3}   {ratio:5.2f} x as long")
    if chosen.output:
        record = {
            "stamp": stamp(seed=0, batch=chosen.batch),
            "title": title,
            "unit": "ms",
            "values": times,
            "ratio": ratios(times),
        }
        chosen.output.parent.mkdir(parents=True, exist_ok=True)
        chosen.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"written to {chosen.output}")
        _plot(chosen.output.with_suffix(".png"), times)
    return 0


def _plot(path: Path, times: Times) -> None:
    """The curve beside the record, where matplotlib is installed."""
    try:
        from minillm_serve.course.chapter02.knob import draw_indirection
    except ImportError:
        return
    draw_indirection(times).savefig(path)
