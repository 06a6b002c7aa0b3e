"""`kernels/` at the root and Hugging Face's package of that name keep out of each other's way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Stands for Hugging Face's package: what transformers takes from it at import are classes and
# decorators, and any name will do for that.
PLANTED = '''
"""A stand-in."""
class Anything:
    def __init__(self, *args, **kwargs): pass
    def __call__(self, decorated): return decorated
    def __or__(self, other): return self
    def __class_getitem__(cls, item): return cls
Anything.INFERENCE = Anything.TRAINING = Anything.TORCH_COMPILE = Anything.FALLBACK = Anything()
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything
'''

IMPORT_MODEL = """
import sys
from transformers import Qwen3ForCausalLM
import minillm_serve.kernels.canary
print(Qwen3ForCausalLM.__name__, getattr(sys.modules.get("kernels"), "__file__", None))
"""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder with an installed distribution `kernels`, of the version that transformers wants."""
    from transformers.utils import import_utils

    version = getattr(import_utils, "KERNELS_MIN_VERSION", "0.12.0")
    package = tmp_path / "site" / "kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PLANTED)
    info = package.parent / f"kernels-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kernels\nVersion: {version}\n")
    return package.parent


def run_at_root(*path: Path) -> subprocess.CompletedProcess[str]:
    """Import a model class in a fresh process whose current folder is the checkout's root."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder) for folder in path)}
    # -c puts the current folder first on sys.path, as a notebook or a script at the root would.
    return subprocess.run(
        [sys.executable, "-c", IMPORT_MODEL],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_transformers_imports_a_model_class_from_the_root() -> None:
    done = run_at_root()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Qwen3ForCausalLM", "None"]


def test_transformers_imports_hugging_faces_kernels_and_not_ours(planted: Path) -> None:
    done = run_at_root(planted)
    assert done.returncode == 0, done.stderr
    name, origin = done.stdout.split()
    assert name == "Qwen3ForCausalLM"
    assert Path(origin).parent == planted / "kernels"


def test_a_regular_package_called_kernels_would_break_the_import(
    planted: Path, tmp_path: Path
) -> None:
    """The two tests above can fail: this is the layout that they guard against."""
    shadow = tmp_path / "shadow" / "kernels"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("")
    done = run_at_root(shadow.parent, planted)
    assert done.returncode != 0
    assert "kernels" in done.stderr.strip().splitlines()[-1]
