"""`minillm-serve bench speculation`: drafts of every kind beside none, alone and in batches."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.drafted import AGAIN, NONE, Contender, Run, contenders, held_out_prompts
from benchmarks.report import parser, positive
from minillm_serve.stamp import stamp

DRAFTERS = ("ngram", "early_exit", "eagle", "auto")
SIZES = (1, 2, 4, 8, 16, 32)

#: kind of text, or batch size -> contender -> its repetitions.
Runs = dict[str, dict[str, list[Run]]]


def main(argv: Sequence[str]) -> int:
    """Measures one user by kind of text, then ever more users at once; all greedy.

    All contenders answer the same prompts, in turn. Prompts of `minillm_serve.distill` that are
    held out from training; reading them is not counted.
    """
    options = parser("speculation", __doc__)
    options.set_defaults(repeat=2)
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument("--drafters", nargs="+", default=DRAFTERS, choices=DRAFTERS)
    options.add_argument("--drafts", type=positive, default=3, help="if fixed (%(default)s)")
    options.add_argument("--most", type=positive, default=5, help="if adaptive (%(default)s)")
    options.add_argument("--prompts", type=positive, default=2, help="of a kind (%(default)s)")
    options.add_argument("--output-len", type=positive, default=64, help="tokens (%(default)s)")
    options.add_argument("--sizes", type=positive, nargs="+", default=SIZES, help="batches")
    options.add_argument("--quick", action="store_true", help="16 tokens, batches of 1 and 4, once")
    chosen = options.parse_args(argv)
    if chosen.quick:
        chosen.repeat, chosen.prompts, chosen.output_len, chosen.sizes = 1, 1, 16, (1, 4)
    everybody = contenders(chosen.model, chosen.drafters, chosen.drafts, chosen.most)
    per_kind = max(chosen.prompts, -(-max(chosen.sizes) // 3))
    asked = held_out_prompts(everybody[0].llm, per_kind)
    mixed = [prompt for together in zip(*asked.values(), strict=True) for prompt in together]
    for contender in everybody:
        contender.answer(mixed[:2], 8)  # the first time is slow
    kinds = {kind: [[p] for p in prompts[: chosen.prompts]] for kind, prompts in asked.items()}
    alone = _measure(everybody, kinds, chosen.output_len, chosen.repeat)
    sizes = {str(size): [mixed[:size]] for size in chosen.sizes}
    crowd = _measure(everybody, sizes, chosen.output_len, chosen.repeat)
    print(_table("One user, by kind of text", alone))
    print(_table("So many users at once, texts of all kinds", crowd))
    if chosen.output:
        context = {
            "seed": 0, "output": chosen.output_len, "prompts": chosen.prompts,
            "drafts": chosen.drafts, "most": chosen.most,
        }  # fmt: skip
        record = {
            "stamp": stamp(**context),
            "title": "Speculative decoding, greedy, fp32",
            "alone": _record(alone),
            "crowd": _record(crowd),
        }
        chosen.output.parent.mkdir(parents=True, exist_ok=True)
        chosen.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"written to {chosen.output}")
        _plot(chosen.output.with_suffix(".png"), record)
    return 0


def _measure(
    everybody: Sequence[Contender],
    groups: Mapping[str, Sequence[list[list[int]]]],
    output_len: int,
    repeat: int,
) -> Runs:
    """Each group's batches, one after the other, by all contenders; each turn another is first."""
    runs: Runs = {name: {c.name: [] for c in everybody} for name in groups}
    for turn in range(repeat):
        first = turn % len(everybody)
        for name, batches in groups.items():
            for contender in (*everybody[first:], *everybody[:first]):
                answered = (contender.answer(batch, output_len) for batch in batches)
                runs[name][contender.name].append(_together(answered))
    return runs


def _together(runs: Iterable[Run]) -> Run:
    total = Run()
    for run in runs:
        total += run
    return total


def _record(runs: Runs) -> dict[str, dict[str, dict[str, Any]]]:
    """What is kept of each: medians, and the ratios of a turn to the same turn without drafts.

    tokens_per_verification counts verifications of a sequence with at least one draft.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for group, rows in runs.items():
        rates = {name: [run.tokens / run.seconds for run in row] for name, row in rows.items()}
        ratios = {
            name: [a / b for a, b in zip(rate, rates[NONE], strict=True)]
            for name, rate in rates.items()
        }
        found[group] = {
            name: {
                "tok_s": rates[name],
                "ms_per_token": 1000 / statistics.median(rates[name]),
                "ratio": statistics.median(ratios[name]),
                "ratios": ratios[name],
                "tokens_per_step": row[0].tokens / row[0].steps,
                "drafts": row[0].stats.num_draft_tokens,
                "accepted": row[0].stats.num_accepted_tokens,
                "tokens_per_verification": row[0].stats.mean_acceptance_length,
            }
            for name, row in rows.items()
        }
    return found


def _table(title: str, runs: Runs) -> str:
    lines = [
        title,
        f"{'':28}{'tok/s':>8}{'ratio':>7}{'from':>7}{'to':>6}{'tokens/step':>13}{'accepted':>15}",
    ]
    for group, rows in _record(runs).items():
        lines.append(f"  {group}")
        for name, row in rows.items():
            accepted = f"{row['accepted']} of {row['drafts']}" if row["drafts"] else ""
            rate = statistics.median(row["tok_s"])
            lines.append(
                f"    {name:24}{rate:8.1f}{row['ratio']:7.2f}"
                f"{min(row['ratios']):7.2f}{max(row['ratios']):6.2f}"
                f"{row['tokens_per_step']:13.2f}{accepted:>15}"
            )
    return "\n".join(lines)


def _plot(path: Path, record: Mapping[str, Any]) -> None:
    """Ratios by kind of text and by batch size, where matplotlib is installed."""
    try:
        from minillm_serve.course import plots
    except ImportError:
        return
    figure, (left, right) = plots.figure(1, 2, height=4.2, sharey=True)
    alone, crowd = record["alone"], record["crowd"]
    names = [name for name in next(iter(alone.values())) if name not in (NONE, AGAIN)]
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        at = [place + (number + 0.5) * width - 0.4 for place in range(len(alone))]
        left.bar(at, [rows[name]["ratio"] for rows in alone.values()], width, label=name)
        line = "-" if "adaptive" in name else "--"
        sizes = [int(size) for size in crowd]
        right.plot(sizes, [rows[name]["ratio"] for rows in crowd.values()], line, marker="o")
    for axes, groups in ((left, alone), (right, crowd)):
        axes.axhline(1, color=plots.COLORS["limit"], lw=1.4, ls="--")
        noise = [ratio for rows in groups.values() for ratio in rows[AGAIN]["ratios"]]
        axes.axhspan(min(noise), max(noise), color=plots.COLORS["limit"], alpha=0.12, lw=0)
    left.set_xticks(range(len(alone)), list(alone))
    right.set_xscale("log", base=2)
    right.set_xticks(sizes, list(crowd))
    figure.legend(loc="outside lower center", ncols=min(3, len(names)), fontsize=9)
    most = max(rows[name]["ratio"] for rows in alone.values() for name in names)
    chosen = [
        rows[name]["ratio"] for rows in crowd.values() for name in names if "adaptive" in name
    ]
    title = f"One user: up to {most:.2f} times as fast"
    plots.label(left, x="kind of text", y="speed / speed without drafts", title=title)
    left.get_legend().remove()  # one below is for both
    title = f"Adaptive: {min(chosen):.2f} to {max(chosen):.2f} times"
    plots.label(right, x="users at once (shaded: no drafts, measured twice)", title=title)
    figure.savefig(path)
