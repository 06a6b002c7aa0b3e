"""Rows of panels as Grafana's dashboard model (schema 41, Grafana 11.6) wants them."""

from collections.abc import Iterator, Sequence
from typing import Any

from minillm_serve.server.grafana.panels import Panel, Row

SCHEMA_VERSION = 41
#: Grafana's grid is so many columns wide.
WIDTH = 24
HEIGHT, HEIGHT_OF_NUMBERS = 8, 4
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


def dashboard(rows: Sequence[Row]) -> Json:
    """The whole dashboard."""
    return {
        "uid": "minillm-serve",
        "title": "minillm-serve",
        "description": "A minillm-serve engine: who comes, how long it takes, and what it costs.",
        "tags": ["llm", "minillm-serve"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,  # one crosshair for all panels
        "time": {"from": "now-30m", "to": "now"},
        "refresh": "10s",
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": list(_placed(rows)),
    }


def _variables() -> list[Json]:
    known = "minillm:num_requests_running"
    source = {"name": "datasource", "label": "Data source", "type": "datasource"}
    return [
        {**source, "query": "prometheus", "current": {}, "hide": 0, "multi": False},
        _labels("job", "Job", f"label_values({known}, job)"),
        _labels("model_name", "Model", f'label_values({known}{{job=~"$job"}}, model_name)'),
    ]


def _labels(name: str, label: str, query: str) -> Json:
    """A variable whose choices are the values of a label."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "choices"},
        "refresh": 2,  # with every change of the time range
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _placed(rows: Sequence[Row]) -> Iterator[Json]:
    """The panels with their places, each row's heading before it."""
    number, y = 1, 0
    for row in rows:
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        number, y = number + 1, y + 1
        a_line = _in_a_line(row.panels)
        width = WIDTH // a_line
        height = HEIGHT_OF_NUMBERS if row.panels[0].is_number else HEIGHT
        for index, panel in enumerate(row.panels):
            x = width * (index % a_line)
            place = {"x": x, "y": y + height * (index // a_line), "w": width, "h": height}
            yield {"id": number, **_panel(panel), "gridPos": place}
            number += 1
        y += height * -(-len(row.panels) // a_line)


def _in_a_line(panels: Sequence[Panel]) -> int:
    """How many lie side by side: numbers all, curves three, or four if there are just four."""
    if panels[0].is_number or len(panels) == 4:
        return len(panels)
    return 3


def _panel(panel: Panel) -> Json:
    options = _number_options() if panel.is_number else _curve_options()
    about = {"description": panel.about} if panel.about else {}
    return {
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        **about,
        "datasource": SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "range": True,
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": options,
    }


def _field(panel: Panel) -> Json:
    most = {} if panel.most is None else {"max": panel.most}
    # Numbers would be coloured by thresholds, of which nobody knows where they lie.
    color = (
        {"mode": "fixed", "fixedColor": "text"} if panel.is_number else {"mode": "palette-classic"}
    )
    style: Json = {} if panel.is_number else {"custom": _style(panel.stacked)}
    return {"unit": panel.unit, "min": 0, **most, "color": color, **style}


def _style(stacked: bool) -> Json:
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if stacked else 0,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }


def _number_options() -> Json:
    return {
        "graphMode": "area",
        "colorMode": "value",
        "justifyMode": "auto",
        "textMode": "value",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
        "orientation": "auto",
        "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
    }


def _curve_options() -> Json:
    return {
        "legend": {
            "displayMode": "list",
            "placement": "bottom",
            "showLegend": True,
            "calcs": ["mean", "max"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
