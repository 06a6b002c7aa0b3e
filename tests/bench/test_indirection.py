"""`minillm-serve bench indirection` runs, and says what it measured on."""

import json
from pathlib import Path

import pytest

from minillm_serve.cli import main


def test_indirection_is_measured_beside_contiguous_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "i.json"
    size = ["--batch", "2", "--shortest", "3", "--longest", "20", "--block-sizes", "1", "16"]
    options = [*size, "--repeat", "1", "--calls", "1", "--output", str(out)]
    assert main(["bench", "indirection", *options]) == 0
    record = json.loads(out.read_text())
    assert record["stamp"]["hardware"]
    assert {name: list(layouts) for name, layouts in record["values"].items()} == {
        "cpu": ["contiguous", "1", "16"],
        "torch": ["contiguous", "1", "16"],
    }
    assert out.with_suffix(".png").stat().st_size > 1_000
    assert "x as long" in capsys.readouterr().out
