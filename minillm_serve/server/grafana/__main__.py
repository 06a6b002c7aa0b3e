"""Writes `dashboard.json` beside this file."""

import json
from pathlib import Path

from minillm_serve.server.grafana.layout import dashboard
from minillm_serve.server.grafana.panels import ROWS

FILE = Path(__file__).with_name("dashboard.json")


def main() -> None:
    """Replaces the file."""
    FILE.write_text(json.dumps(dashboard(ROWS), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
