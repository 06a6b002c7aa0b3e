"""One JSON file and one table, written after every entry: a run cut short leaves what it had."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Figures that a table shows, with their headings, in this order.
COLUMNS = {
    "error": "error",
    "ms": "ms",
    "floor_ms": "floor ms",
    "roof_share": "of roof",
    "goal": "goal",
    "tokens_per_s": "tok/s",
    "ms_per_token": "ms/token",
}


@dataclass
class Report:
    """What was found out, item by item.

    Attributes:
        stamp: machine, versions, commit.
        path: of the JSON file; the table goes beside it. None keeps nothing.
        entries: one dict an item: section, name, status (ok, missed, failed or skipped), figures.
    """

    stamp: Mapping[str, Any]
    path: Path | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)

    def add(self, section: str, name: str, status: str, **figures: Any) -> None:
        """Notes an item down, prints its line and writes both files."""
        entry = {"section": section, "name": name, "status": status, **figures}
        self.entries.append(entry)
        print(f"[{section}] {_line(entry)}", flush=True)
        self.save()

    @property
    def num_failed(self) -> int:
        """Items that were to work and did not."""
        return sum(entry["status"] == "failed" for entry in self.entries)

    def save(self) -> None:
        """Writes the JSON file, and the table beside it."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            record = {"stamp": dict(self.stamp), "entries": self.entries}
            self.path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
            self.path.with_suffix(".md").write_text(self.table() + "\n", "utf-8")

    def table(self) -> str:
        """All of it, to be read."""
        facts = ", ".join(f"{key} {value}" for key, value in self.stamp.items())
        lines = [f"# GPU check\n\n{facts}"]
        for section in dict.fromkeys(entry["section"] for entry in self.entries):
            entries = [entry for entry in self.entries if entry["section"] == section]
            shown = [key for key in COLUMNS if any(key in entry for entry in entries)]
            heads = ["item", "result", *(COLUMNS[key] for key in shown), "peers", "remarks"]
            lines.append(f"\n## {section}\n")
            lines.append("| " + " | ".join(heads) + " |")
            lines.append("|" + " --- |" * len(heads))
            for entry in entries:
                cells = [entry["name"], entry["status"]]
                cells += [_cell(entry.get(key, "")) for key in shown]
                cells += [_peers(entry), _remarks(entry)]
                lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)


def _line(entry: Mapping[str, Any]) -> str:
    told = [f"{COLUMNS[key]} {_cell(entry[key])}" for key in COLUMNS if key in entry]
    parts = [*told, _peers(entry), _remarks(entry)]
    return f"{entry['name']}: {entry['status']}  {', '.join(part for part in parts if part)}"


def _peers(entry: Mapping[str, Any]) -> str:
    """How many times as fast as each peer."""
    ratios = entry.get("faster_than", {})
    return ", ".join(f"{ratio:.2f} x {name}" for name, ratio in ratios.items())


def _remarks(entry: Mapping[str, Any]) -> str:
    remarks = entry.get("remarks", [])
    told = [entry["why"]] if "why" in entry else []
    return "; ".join([*told, *remarks]).replace("\n", " ").replace("|", "/")


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
