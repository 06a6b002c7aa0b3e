"""A notebook with one of each of the course's widgets, small enough to run in two seconds."""

from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from minillm_serve.course import notebooks

IMPORTS = """from minillm_serve.course import (
    Experiment, FormulaExperiment, Predict, Question, Quiz, Symbol, controls, plots, show)"""

KNOB = """def draw_knob(batch):
    fig, ax = plots.figure()
    ax.plot([0, 64], [0, 64], color=plots.COLORS["model"], label="model")
    plots.measured(ax, [batch], [batch])
    plots.label(ax, x="batch size B", y="tokens per step", title="One token each")
    return fig

Experiment(draw_knob, {"batch": controls.integer("batch size B", 1, 64, 8)},
           title="One knob", describe=lambda batch: f"B = {batch} makes {batch} tokens.")"""

PREDICTED = """Experiment(draw_knob, {"batch": controls.integer("batch size B", 1, 64, 20)},
           title="Predict it", describe=lambda batch: f"B = {batch} makes {batch} tokens.",
           predict=Predict("How many tokens does a step make at **B = 20**?", answer=20,
                           unit="tokens", explain="One for each request."))"""

BROKEN = """def draw_broken(batch):
    if batch > 2:
        raise ValueError(f"no picture for {batch}")
    return draw_knob(batch)

Experiment(draw_broken, {"batch": controls.integer("batch size B", 1, 64, 2)}, title="Broken")"""

LINKED = """def draw_token(N, H_kv):
    fig, ax = plots.figure(height=3)
    plots.mark(ax.barh([0, 1], [N * H_kv] * 2, color=plots.COLORS["kv"]), "N")
    plots.mark(ax.barh([0, 1], [H_kv] * 2, color=plots.COLORS["reserved"]), "H_kv")
    plots.bytes_axis(ax.xaxis)
    plots.label(ax, x="bytes per token", title="Keys and values of every layer")
    return fig

FormulaExperiment(
    draw_token,
    {"N": controls.integer("layers N", 1, 80, 32),
     "H_kv": controls.powers_of_two("KV heads", 1, 64, 8)},
    formula=r"\\text{bytes} = 2 \\cdot N \\cdot H_{kv}",
    symbols={"N": Symbol("N", "layers"), "H_kv": Symbol("H_{kv}", "KV heads")},
    result=lambda N, H_kv: f"{2 * N * H_kv} B", title="Linked",
    describe=lambda N, H_kv: f"{2 * N * H_kv} bytes.")"""

QUIZ = """Quiz([
    Question("Which does **GQA** shrink?", ["query heads $H$", "KV heads $H_{kv}$"], 1,
             why={0: "Queries are not cached.", 1: "Several queries share one."}),
    Question("How large is 1 GiB?", ["$10^9$ bytes", "$2^{30}$ bytes"], 1,
             why={0: "That is 1 GB."})])"""

SHOWN = "show(plots.human_bytes)"

CELLS = (IMPORTS, KNOB, PREDICTED, BROKEN, LINKED, QUIZ, SHOWN)


def build(cells: tuple[str, ...] = CELLS) -> Any:
    """The notebook, not yet executed; ids are the same each time."""
    code = [new_code_cell(source, id=f"code-{i}") for i, source in enumerate(cells)]
    return new_notebook(cells=[new_markdown_cell("# Small", id="title"), *code])


def write_executed(path: Path) -> None:
    """Execute it as the course's notebooks are, and write it."""
    done, _ = notebooks.execute(build(), path.parent)
    notebooks.write(nbformat.from_dict(done), path)
