"""Formulas: which letters are tagged, and how a formula, its controls and its drawing are tied."""

from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from minillm_serve.course import FormulaExperiment, Predict, Symbol, controls, plots
from minillm_serve.course.formula import Formula
from minillm_serve.course.render import to_svg

LATEX = r"\text{bytes} = 2 \cdot N \cdot H_{kv} \cdot H \cdot N"
SYMBOLS = {
    "N": Symbol("N", "layers", "Each layer has its own."),
    "H_kv": Symbol("H_{kv}", "KV heads"),
    "H": Symbol("H", "query heads"),
}


def tagged(mathml: str) -> list[tuple[str, str]]:
    """`(symbol, element's name)` in document order."""
    return [
        (element.attrib["data-sym"], element.tag)
        for element in ElementTree.fromstring(mathml).iter()
        if "data-sym" in element.attrib
    ]


def test_each_occurrence_is_tagged_and_an_indexed_symbol_is_one_whole() -> None:
    mathml = Formula(LATEX, SYMBOLS).mathml({})
    assert tagged(mathml) == [("N", "mi"), ("H_kv", "msub"), ("H", "mi"), ("N", "mi")]


def test_each_symbol_is_one_stop_of_the_tab_key_with_a_label() -> None:
    mathml = Formula(LATEX, SYMBOLS).mathml({"N": "32"})
    stops = [e for e in ElementTree.fromstring(mathml).iter() if e.get("tabindex")]
    assert [stop.get("data-sym") for stop in stops] == ["N", "H_kv", "H"]
    assert stops[0].get("aria-label") == "N: layers = 32. Each layer has its own."


def test_the_line_of_values_replaces_symbols_and_ends_in_the_result() -> None:
    line = Formula(LATEX, SYMBOLS).with_values({"N": "32", "H_kv": "8", "H": "9"}, "144 KiB")
    assert "".join(ElementTree.fromstring(line).itertext()) == "bytes=2·32·8·9·32=144 KiB"
    assert "tabindex" not in line


@pytest.mark.parametrize("latex", [r"\lambda", r"\mathrm{BW}", "L", r"t_{\text{step}}", r"\rho"])
def test_letters_greek_or_upright_or_indexed_can_be_symbols(latex: str) -> None:
    formula = Formula(rf"\frac{{1 + {latex}}}{{2^{{{latex}}}}}", {"x": Symbol(latex)})
    assert [symbol for symbol, _ in tagged(formula.mathml({}))] == ["x", "x"]


def test_a_symbol_that_is_not_in_the_formula_is_named() -> None:
    with pytest.raises(ValueError, match=r"\['D'\] do not occur"):
        Formula("2 N", {"D": Symbol("D")})


def test_several_letters_as_one_symbol_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"wrap several letters as \\mathrm"):
        Formula("2 BW", {"bw": Symbol("BW")})


@pytest.mark.parametrize("key", ["2N", "H kv", "", "a.b"])
def test_a_key_that_cannot_be_a_class_name_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="must match"):
        Formula("N", {key: Symbol("N")})


def draw(layers: int, heads: int) -> Figure:
    """Two marked bars."""
    fig, ax = plots.figure(height=2)
    plots.mark(ax.barh([0, 1], [layers * heads] * 2), "N")
    plots.mark(ax.barh([0, 1], [heads] * 2)[0], "N", "H_kv")
    return fig


def make(**options: Any) -> FormulaExperiment:
    """Two controls, named otherwise than their symbols; `x` has none."""
    return FormulaExperiment(
        draw,
        {
            "layers": controls.integer("layers N", 1, 80, 32),
            "heads": controls.integer("heads", 1, 64, 8),
        },
        formula=r"x = 2 \cdot N \cdot H_{kv}",
        symbols={
            "x": Symbol("x", "bytes"),
            "N": Symbol("N", "layers", control="layers"),
            "H_kv": Symbol("H_{kv}", "KV heads", control="heads"),
        },
        result=lambda layers, heads: f"{2 * layers * heads} B",
        describe=lambda layers, heads: f"{2 * layers * heads} bytes.",
        **options,
    )


def test_each_control_has_the_class_and_colour_of_its_symbol() -> None:
    experiment = make()
    assert {"sym-N", "mls-c1"} <= set(experiment.controls["layers"]._dom_classes)
    assert {"sym-H_kv", "mls-c2"} <= set(experiment.controls["heads"]._dom_classes)


def test_live_values_follow_the_controls() -> None:
    experiment = make(live=lambda layers, heads: {"x": "bytes", "H_kv": f"{heads} heads"})
    experiment.set(layers=10, heads=4)
    text = "".join(ElementTree.fromstring(experiment.links.live).itertext())
    assert text == "bytes=2·10·4 heads=80 B"
    assert experiment.links.hints["H_kv"] == "H_kv: KV heads = 4 heads"


def test_marked_parts_carry_their_symbols_in_the_drawing() -> None:
    svg = make().picture.svg
    assert svg.startswith("<svg")
    assert svg.count('data-sym="N"') == 2
    assert svg.count('data-sym="N H_kv"') == 1
    assert 'id="sym-' not in svg


def test_the_drawing_is_the_same_text_each_time_and_asks_for_nothing() -> None:
    first, second = to_svg(draw(2, 3)), to_svg(draw(2, 3))
    assert first == second
    addresses = [part.split('"')[0] for part in first.split('="http')[1:]]
    assert all("w3.org" in address for address in addresses)  # names of namespaces only


def test_the_result_is_not_told_before_the_learner_commits() -> None:
    experiment = make(predict=Predict("How many bytes?", answer=512))
    assert "512" not in experiment.links.live
    assert experiment.picture.svg == ""
    assert experiment.panel is not None
    experiment.panel.show_button.click()
    assert "512 B" in experiment.links.live
    assert experiment.picture.svg


def test_b154_the_committed_picture_has_formula_and_settings_above_it() -> None:
    experiment = make(title="Bytes")
    assert experiment._header()[:2] == [
        "Bytes",
        r"$x = 2 \cdot N \cdot H_{kv}\;=\;\mathrm{512\ B}$",
    ]
    assert "image/png" in experiment._repr_mimebundle_()


def test_a_formula_that_matplotlib_cannot_set_is_left_out_of_the_picture() -> None:
    experiment = FormulaExperiment(
        draw,
        {"layers": controls.integer("N", 1, 80, 32), "heads": controls.integer("heads", 1, 64, 8)},
        formula=r"\begin{matrix} N & 2 \end{matrix}",
        symbols={"N": Symbol("N", control="layers")},
    )
    assert not any("matrix" in line for line in experiment._header())
    assert experiment.static_png()


def test_a_symbol_tied_to_a_control_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="symbol 'N' names control 'layers'"):
        FormulaExperiment(
            draw,
            {"N": controls.integer("N", 1, 80, 32)},
            formula="N",
            symbols={"N": Symbol("N", control="layers")},
        )


def test_marking_a_part_without_a_symbol_is_refused() -> None:
    _, ax = plots.figure()
    with pytest.raises(ValueError, match="at least one symbol"):
        plots.mark(ax.text(0, 0, "x"))
