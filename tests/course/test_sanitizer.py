"""`tests/sanitize.cfg`: what nbval does not compare, and that it compares everything else."""

import configparser
import re
from pathlib import Path

import pytest

CONFIG = Path(__file__).parents[1] / "sanitize.cfg"


def sanitized(text: str) -> str:
    """Replace as nbval does: section by section, in order."""
    parser = configparser.RawConfigParser()
    parser.read(CONFIG, encoding="utf-8")
    for section in parser.sections():
        text = re.sub(parser.get(section, "regex"), parser.get(section, "replace"), text)
    return text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("<object at 0x7f2920edbc90>", "<object at 0x55ba21105230>"),
        ('File "/tmp/ipykernel_12/345.py", line 1', 'File "/tmp/ipykernel_99/678.py", line 1'),
        (
            "generate:  50%|█████     | 4/8 [00:01<00:01,  3.1it/s]",
            "generate: 100%|██| 8/8 [00:02]",
        ),
        ("Wall time: 3.1 s", "Wall time: 512 ms"),
        ("1.2 ms ± 3 µs per loop (mean of 7)", "9.9 ms ± 8 µs per loop (mean of 7)"),
        ("# minillm_serve/core/engine.py:12", "# minillm_serve/core/engine.py:480"),
    ],
)
def test_b145_what_differs_from_run_to_run_is_not_compared(one: str, other: str) -> None:
    assert sanitized(one) == sanitized(other)


@pytest.mark.parametrize(
    "text",
    ["23 ms per token", "2783 tok/s", "0.5 MiB", "62.5% wasted", "0x10", "engine.py", "at 12:30 s"],
)
def test_computed_numbers_are_compared(text: str) -> None:
    assert sanitized(text) == text
