"""The one look of the course's pictures."""

import itertools

import matplotlib as mpl
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb

from minillm_serve.course import plots


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (524288, "512 KiB"),
        (1023 * 1024, "1023 KiB"),
        (2**31, "2 GiB"),
        (1.5 * 2**40, "1.5 TiB"),
        (2**60, "1024 PiB"),
        (-(2**20), "-1 MiB"),
    ],
)
def test_bytes_are_told_in_binary_units(count: float, text: str) -> None:
    assert plots.human_bytes(count) == text


def test_a_byte_axis_has_round_ticks_in_its_best_unit() -> None:
    fig, ax = plots.figure()
    ax.plot([0, 1], [0, 200 * 1024])
    plots.bytes_axis(ax.yaxis)
    fig.canvas.draw()
    shown = [label.get_text() for label in ax.get_yticklabels()]
    assert {"0 B", "64 KiB", "128 KiB", "192 KiB"} <= set(shown)


def test_a_byte_axis_in_a_fixed_unit_has_round_numbers_of_it() -> None:
    fig, ax = plots.figure()
    ax.plot([0, 1], [0, 40 * 2**30])
    plots.bytes_axis(ax.yaxis, "GiB")
    fig.canvas.draw()
    shown = {label.get_text() for label in ax.get_yticklabels()}
    assert {"0", "16", "32"} <= shown or {"0", "10", "20", "30", "40"} <= shown


def test_an_unknown_unit_of_a_byte_axis_is_named() -> None:
    _, ax = plots.figure()
    with pytest.raises(ValueError, match="unit='GB' is not"):
        plots.bytes_axis(ax.yaxis, "GB")


def test_figures_are_not_registered_anywhere() -> None:
    before = pyplot.get_fignums()
    plots.figure()
    assert pyplot.get_fignums() == before


def test_the_style_ends_with_its_block() -> None:
    before = mpl.rcParams["axes.grid"]
    with plots.style():
        assert mpl.rcParams["axes.grid"] is True
    assert mpl.rcParams["axes.grid"] == before


def test_labels_title_and_legend_are_where_a_reader_looks() -> None:
    _, ax = plots.figure()
    ax.plot([1, 2], [1, 2], label="model")
    points = plots.measured(ax, [1], [1])
    plots.label(ax, x="batch size B", y="tokens/s", title="It grows")
    assert ax.get_title(loc="left") == "It grows"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "model",
        "measured on this machine",
    ]
    assert points.get_linestyle() == "None"


def test_a_figure_shows_itself_the_same_each_time() -> None:
    first, second = (plots.figure()[0]._repr_png_() for _ in range(2))
    assert first == second
    assert first.startswith(b"\x89PNG")


# What a dichromat sees, by the matrices of Vienot, Brettel and Mollon (1999) on linear RGB.
DICHROMATS = {
    "protan": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "deutan": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
}
TOGETHER = (
    ("useful", "reserved", "wasted", "free"),
    ("ours", "peer", "baseline"),
    ("model", "measured", "limit", "prediction"),
    ("prefill", "decode", "waiting"),
    ("accepted", "rejected"),
)


def seen(colour: str, kind: str) -> tuple[float, ...]:
    """A colour as a dichromat sees it, linear RGB."""
    linear = [((c + 0.055) / 1.055) ** 2.4 if c > 0.04045 else c / 12.92 for c in to_rgb(colour)]
    return tuple(sum(a * b for a, b in zip(row, linear, strict=True)) for row in DICHROMATS[kind])


@pytest.mark.parametrize("kind", DICHROMATS)
@pytest.mark.parametrize("roles", TOGETHER)
def test_roles_that_stand_together_stay_apart_for_colour_blind_readers(
    kind: str, roles: tuple[str, ...]
) -> None:
    for one, other in itertools.combinations(roles, 2):
        a, b = seen(plots.COLORS[one], kind), seen(plots.COLORS[other], kind)
        distance = sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5
        assert distance > 0.1, f"{one} and {other} look alike ({distance:.2f}) to a {kind} reader"
