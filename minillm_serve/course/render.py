"""Figures into bytes, the same bytes each time: PNG for pictures, SVG for drawings that react."""

from __future__ import annotations

import html
import io
import re
import traceback
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from PIL import Image

_HEADER_INK = "#1F2933"
_HEADER_GREY = "#52606D"


def to_png(figure: Figure) -> bytes:
    """Render at the figure's own size and resolution, without a creation date or version."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def to_svg(figure: Figure) -> str:
    """Render as an `<svg>` element whose marked parts carry `data-sym`.

    A part is marked by `plots.mark`, that is by the gid `sym-a+b`, which becomes
    `data-sym="a b"`: several parts may belong to one symbol, and an id may not be repeated.
    Text is drawn as outlines, so that it looks the same with whatever fonts the reader has.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "minillm-serve"}):
        figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]  # no XML declaration or doctype inside an HTML page
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    return re.sub(r'id="sym-([^"]+)"', lambda hit: f'data-sym="{hit[1].replace("+", " ")}"', text)


def with_header(png: bytes, lines: Sequence[str], dpi: float) -> bytes:
    """Put lines of text above a picture: what a reader without a kernel sees of the controls.

    Args:
        png: The picture.
        lines: Text; the first is set as the title, `$...$` as a formula.
        dpi: Dots per inch of the picture.
    """
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    sizes = [13.0] + [13.0 if "$" in line else 9.5 for line in lines[1:]]
    heights = [size / 72 * 1.55 for size in sizes]  # inches
    header = Figure(figsize=(picture.width / dpi, sum(heights) + 0.22), dpi=dpi)
    header.set_facecolor("white")
    top_in = header.get_figheight() - 0.1
    for line, size, height in zip(lines, sizes, heights, strict=True):
        is_title = line is lines[0]
        header.text(
            0.012,
            (top_in - height / 2) / header.get_figheight(),
            line,
            va="center",
            fontsize=size,
            fontweight="bold" if is_title else "normal",
            color=_HEADER_GREY if size < 13 else _HEADER_INK,
            parse_math="$" in line,
        )
        top_in -= height
    top = Image.open(io.BytesIO(to_png(header))).convert("RGB")
    both = Image.new("RGB", (picture.width, top.height + picture.height), "white")
    both.paste(top, (0, 0))
    both.paste(picture, (0, top.height))
    buffer = io.BytesIO()
    # A palette of 256 colours loses nothing that one sees in a plot, and halves the notebook.
    both.quantize(256, dither=Image.Dither.NONE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def problem_html(error: Exception) -> str:
    """What stands in the picture's place when drawing it raised."""
    summary = html.escape(f"{type(error).__name__}: {error}")
    where = error.__traceback__
    own = str(Path(__file__).parent)
    while where is not None and where.tb_frame.f_code.co_filename.startswith(own):
        where = where.tb_next  # the reader looks for a fault in the drawing, not in these tools
    trace = html.escape("".join(traceback.format_exception(type(error), error, where)))
    return (
        f'<div class="mls-problem" role="alert"><b>The drawing failed.</b> {summary}'
        f"<details><summary>Where?</summary><pre>{trace}</pre></details></div>"
    )
