"""Grafana's dashboard: Grafana can read it, and Prometheus has what it asks for."""

import enum
import json
import re
import types
import typing
from contextlib import suppress

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel, RowPanel

from minillm_serve.cli_serve import parser
from minillm_serve.server.grafana.__main__ import FILE
from minillm_serve.server.grafana.layout import WIDTH, dashboard
from minillm_serve.server.grafana.panels import ROWS

#: Labels that Prometheus adds to whatever it scrapes.
ADDED = {"job", "instance"}


@pytest.fixture(scope="module")
def stored():
    return json.loads(FILE.read_text("utf-8"))


def panels(stored):
    return [panel for panel in stored["panels"] if panel["type"] != "row"]


def queries(stored):
    return [target["expr"] for panel in panels(stored) for target in panel["targets"]]


def test_the_file_is_what_the_rows_make(stored):
    """If not: python -m minillm_serve.server.grafana"""
    assert stored == dashboard(ROWS)
    assert FILE.read_text("utf-8").endswith("}\n")


def misfits(value, annotation, where):
    """Where a value of Grafana's model is not of the type that the model says."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in (object, typing.Any):
        return fields(value, where)
    if origin is typing.Literal:
        return [] if value in inner else [where]
    if origin in (typing.Union, types.UnionType):
        return min((misfits(value, one, where) for one in inner), key=len)
    if origin in (list, dict):
        if not isinstance(value, origin):
            return [where]
        items = value.items() if origin is dict else enumerate(value)
        return [w for key, v in items for w in misfits(v, inner[-1], f"{where}.{key}")]
    if isinstance(annotation, enum.EnumType):
        return [] if value in [one.value for one in annotation] else [where]
    if not isinstance(value, (int, float) if annotation is float else annotation):
        return [f"{where}: {value!r} is no {annotation}"]
    return fields(value, where)


def fields(value, where):
    """The misfits of an object of Grafana's model; none of anything else."""
    if not hasattr(value, "from_json"):
        return []
    hints = typing.get_type_hints(type(value)).items()
    return [w for key, one in hints for w in misfits(getattr(value, key), one, f"{where}.{key}")]


def lost(before, after, where="dashboard"):
    """What of a document its reader does not know, and drops."""
    if isinstance(before, dict) and isinstance(after, dict):
        gone = [f"{where}.{key}" for key in before.keys() - after.keys()]
        both = before.keys() & after.keys()
        return gone + [w for key in both for w in lost(before[key], after[key], f"{where}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [w for i, (b, a) in pairs for w in lost(b, a, f"{where}[{i}]")]
    return [] if before == after else [f"{where}: {before!r} becomes {after!r}"]


def read(document):
    """Reads a dashboard with Grafana's own model (schema 41, of Grafana 11.6)."""
    register_default_plugins()
    model = Dashboard.from_json(document)
    again = json.loads(json.dumps(model, cls=JSONEncoder))
    return [*misfits(model, Dashboard, "dashboard"), *lost(document, again)]


def test_grafanas_model_reads_all_of_it_and_loses_nothing(stored):
    assert read(stored) == []
    kinds = {type(panel) for panel in Dashboard.from_json(stored).panels}
    assert kinds == {Panel, RowPanel}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schemaVersion", "41"),
        ("colour", 1),
        ("panels.1.gridPos.w", "wide"),
        ("panels.1.titel", "x"),
        ("panels.1.options.graphMode", 3),
        ("panels.1.options.nothing", 3),
        ("panels.9.targets.0.expression", "x"),
        ("panels.9.fieldConfig.defaults.unit", 3),
        ("panels.9.fieldConfig.defaults.custom.drawStyle", 3),
        ("templating.list.1.sort", "up"),
    ],
)
def test_a_document_that_grafana_would_not_read_is_found(stored, path, value):
    """The check above would find a fault if there were one."""
    document = json.loads(json.dumps(stored))
    node = document
    *way, last = path.split(".")
    for key in way:
        node = node[int(key) if isinstance(node, list) else key]
    node[last] = value
    with suppress(TypeError, ValueError, AttributeError, KeyError):  # its reader itself complains
        assert read(document) != []


def selectors(expr):
    """Each metric of an expression with the labels that it is asked for."""
    expr = expr.replace("$__rate_interval", "1m")
    found = []

    def walk(node, labels):
        match node:
            case promql_parser.VectorSelector():
                found.append((node.name, labels | {m.name for m in node.matchers.matchers}))
            case promql_parser.MatrixSelector():
                walk(node.vector_selector, labels)
            case promql_parser.AggregateExpr():
                walk(node.expr, labels | set(node.modifier.labels if node.modifier else ()))
            case promql_parser.Call():
                for arg in node.args:
                    walk(arg, labels)
            case promql_parser.BinaryExpr():
                walk(node.lhs, labels)
                walk(node.rhs, labels)
            case promql_parser.ParenExpr():
                walk(node.expr, labels)

    walk(promql_parser.parse(expr), set())
    return found


@pytest.fixture(scope="module")
def exposed(start):
    """Names of series, each with its labels, of a server that has done a bit of everything."""
    with start(speculative_config="ngram") as running:
        running.complete([5, 6, 7, 8] * 8, max_tokens=30, ignore_eos=True, temperature=0)
        running.client.get("/health")
        names = running.figures()
    series = {}
    for name in names:
        labels = set(re.findall(r'(\w+)="', name))
        series.setdefault(name.split("{")[0], set()).update(labels)
    return series


def test_every_query_is_promql_and_asks_for_what_the_server_tells(stored, exposed):
    asked = [selector for expr in queries(stored) for selector in selectors(expr)]
    assert len(asked) > 50
    missing = [(name, labels) for name, labels in asked if name not in exposed]
    assert missing == []
    assert [(n, labels) for n, labels in asked if not labels <= exposed[n] | ADDED] == []


def test_quantiles_keep_the_bounds_and_counters_are_never_shown_bare(stored):
    """Two mistakes that PromQL takes without a word."""
    for expr in queries(stored):
        for quantile in re.findall(r"histogram_quantile\(.*?_bucket", expr):
            assert "by (le)" in quantile
        for name in re.findall(r"(\w+)\(minillm:\w+_(?:total|sum|count|bucket)\b(?!_)", expr):
            assert name == "rate"


def test_legends_name_labels_that_are_left(stored):
    for panel in panels(stored):
        for target in panel["targets"]:
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
                assert label in ("instance", *grouped)


def test_variables_choose_among_servers_and_models(stored):
    names = {variable["name"] for variable in stored["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(stored["panels"])))
    assert used - {"__rate_interval"} == names


def test_panels_lie_side_by_side_within_the_grid(stored):
    taken = set()
    for panel in stored["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= WIDTH
        taken |= cells
    numbers = [panel["id"] for panel in stored["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_prometheus_looks_where_the_server_listens():
    (job,) = yaml.safe_load(FILE.with_name("prometheus.yml").read_text())["scrape_configs"]
    port = parser().parse_args([]).port
    assert job["static_configs"] == [{"targets": [f"localhost:{port}"]}]
    assert job["job_name"] == "minillm-serve"
