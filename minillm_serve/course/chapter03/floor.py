"""The floor under decode attention: bytes, divided by bandwidth, and who is there to fetch them."""

from __future__ import annotations

from matplotlib.figure import Figure

from minillm_serve.course import FormulaExperiment, Symbol, controls, plots
from minillm_serve.course.chapter03.pictures import times_the_floor
from minillm_serve.sim import HARDWARE, MODELS

#: Multiprocessors of each card, from NVIDIA's data sheets and whitepapers (2020-2023).
MULTIPROCESSORS = {
    "L4": 58,
    "RTX 4090": 128,
    "A100 40GB": 108,
    "A100 80GB": 108,
    "H100 SXM": 132,
    "H200 SXM": 132,
}
DTYPE_BYTES = 2
_SHAPES = ("Llama-3-8B", "Qwen3-8B", "Llama-2-7B", "Llama-3-70B")


def attention_bytes(model: str, batch: int, context: int) -> int:
    """Keys and values of a decode step, all layers, each once: 2 N H_kv D b B L."""
    return MODELS[model].kv_bytes_per_token(DTYPE_BYTES) * batch * context


def attention_flops(model: str, batch: int, context: int) -> int:
    """2 for each number of a key and 2 for each of a value, for every query head."""
    shape = MODELS[model]
    return 4 * shape.num_layers * shape.num_heads * shape.head_dim * batch * context


def floor_s(model: str, batch: int, context: int, card: str) -> float:
    """Seconds that the bytes alone take."""
    return attention_bytes(model, batch, context) / HARDWARE[card].bandwidth_bytes_s


def intensity(model: str) -> float:
    """FLOP a byte: 4 H D / (2 H_kv D b), the query heads of a group when b is 2."""
    return attention_flops(model, 1, 1) / attention_bytes(model, 1, 1)


def ridge(card: str) -> float:
    """FLOP a byte above which a card multiplies longer than it reads."""
    return HARDWARE[card].flops_fp16_dense / HARDWARE[card].bandwidth_bytes_s


def programs(model: str, batch: int, splits: int = 1) -> int:
    """Programs of one layer's launch, from stage 4 on."""
    return batch * MODELS[model].num_kv_heads * splits


def _draw(model: str, batch: int, context: int, card: str) -> Figure:
    figure, ax = plots.figure(height=3.6)
    floor = 1e3 * floor_s(model, batch, context, card)
    group = MODELS[model].num_heads // MODELS[model].num_kv_heads
    times = times_the_floor(group)
    bars = ax.barh(list(times), [floor * t for t in times.values()], color=plots.COLORS["kv"])
    ax.bar_label(bars, fmt="%.3g ms", padding=4)
    plots.mark(bars, "N", "H_kv", "D", "b", "B", "L", "BW")
    line = ax.axvline(floor, color=plots.COLORS["limit"], lw=1.8, label="floor: each byte once")
    plots.mark(line, "N", "H_kv", "D", "b", "B", "L", "BW")
    work = 1e3 * attention_flops(model, batch, context) / HARDWARE[card].flops_fp16_dense
    label = f"arithmetic on tensor cores: {work:.2g} ms"
    ax.axvline(work, color=plots.COLORS["compute"], lw=1.8, ls="--", label=label)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlim(0, floor * max(times.values()) * 1.13)
    plots.label(
        ax,
        x="ms a step for attention, if every request went to memory",
        title=f"{model} on {card}: at best {floor:.3g} ms a step",
    )
    return figure


def _describe(model: str, batch: int, context: int, card: str) -> str:
    started, there = programs(model, batch), MULTIPROCESSORS[card]
    busy = min(1.0, started / there)
    return (
        f"{intensity(model):g} FLOP a byte, and {card} needs {ridge(card):.0f} before arithmetic "
        f"is what takes the time. Without splitting, {started} programs for {there} "
        f"multiprocessors: {busy:.0%} of them have work."
    )


def experiment() -> FormulaExperiment:
    """The widget."""
    return FormulaExperiment(
        _draw,
        {
            "model": controls.choice("model (N, H_kv, D)", list(_SHAPES), "Llama-3-8B"),
            "batch": controls.powers_of_two("batch B", 1, 256, 16),
            "context": controls.powers_of_two("context L", 256, 131072, 8192, unit="tokens"),
            "card": controls.choice("card (β)", list(HARDWARE), "H200 SXM"),
        },
        formula=r"t = \frac{2 \cdot N \cdot H_{kv} \cdot D \cdot b \cdot B \cdot L}{\beta}",
        symbols={
            "N": Symbol("N", "layers", control="model"),
            "H_kv": Symbol("H_{kv}", "KV heads", control="model"),
            "D": Symbol("D", "head dim", control="model"),
            "b": Symbol("b", "bytes of a number, here 2"),
            "B": Symbol("B", "sequences in the batch", control="batch"),
            "L": Symbol("L", "tokens of each sequence", control="context"),
            "BW": Symbol(r"\beta", "bytes a second from memory", control="card"),
        },
        live=_live,
        result=lambda **values: f"{1e3 * floor_s(**values):.3g} ms",
        title="The floor under a decode step's attention",
        describe=_describe,
    )


def _live(model: str, batch: int, context: int, card: str) -> dict[str, str]:
    shape = MODELS[model]
    return {
        "N": str(shape.num_layers),
        "H_kv": str(shape.num_kv_heads),
        "D": str(shape.head_dim),
        "b": str(DTYPE_BYTES),
        "B": str(batch),
        "L": f"{context:,}",
        "BW": f"{HARDWARE[card].bandwidth_bytes_s / 1e12:.3g} TB/s",
    }
