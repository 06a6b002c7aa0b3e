"""What a name of a model leads to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minillm_serve.models.errors import ModelError
from minillm_serve.models.resolve import resolve_model
from tests.models.tiny import random_model, save


@pytest.fixture(autouse=True)
def nothing_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINILLM_SERVE_CACHE", str(tmp_path / "cache"))


def test_a_directory_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = save(random_model("llama"), tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert resolve_model(directory) == resolve_model(str(directory)) == directory
    assert resolve_model("mine") == resolve_model("./mine") == directory
    assert not (tmp_path / "cache").exists()


def test_safetensors_are_preferred_to_a_gguf_beside_them(tmp_path: Path) -> None:
    directory = save(random_model("llama"), tmp_path / "mine")
    (directory / "model.gguf").write_bytes(b"GGUF")
    assert resolve_model(directory) == directory


@pytest.mark.parametrize("name", ["nothing", "./not/here", "/no/such/dir", "x.gguf", "", "a/b/c"])
def test_a_name_that_leads_nowhere_is_refused_with_what_is_possible(name: str) -> None:
    with pytest.raises(ModelError, match=r"no model.*smollm2-135m.*hub id"):
        resolve_model(name)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"")
    with pytest.raises(ModelError, match=r"is a file, and not a GGUF.*directory"):
        resolve_model(file)


def test_a_hub_id_that_cannot_be_had_says_what_to_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline (as all tests are) this is the answer to every id that is not in the hub's cache."""
    with pytest.raises(ModelError, match=r"someone/some-model.*hub.*Check the name, the network"):
        resolve_model("someone/some-model")


RESOLVE = """
import sys
from minillm_serve.models.errors import ModelError
from minillm_serve.models.loader import load_model
from minillm_serve.models.resolve import resolve_model
try:
    path = resolve_model(sys.argv[1], progress=False)
    print(path, load_model(path, dtype=None, device="cpu").config.architecture)
except ModelError as error:
    print("ModelError", error)
"""


def resolve_offline(hub: Path, name: str) -> str:
    """What a process answers whose hub cache is ``hub`` (the hub's client reads it at import)."""
    return subprocess.run(
        [sys.executable, "-c", RESOLVE, name],
        env={**os.environ, "HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def hub_snapshot(hub: Path, name: str) -> Path:
    """The folder of a model in a hub cache, as the hub's client lays it out."""
    model = hub / f"models--{name.replace('/', '--')}"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0" * 40)
    snapshot = model / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    return snapshot


def test_a_hub_id_leads_to_the_snapshot_in_the_hubs_cache(tmp_path: Path) -> None:
    snapshot = save(random_model("qwen2"), hub_snapshot(tmp_path, "someone/tiny"))
    assert resolve_offline(tmp_path, "someone/tiny").split() == [str(snapshot), "Qwen2ForCausalLM"]


def test_a_hub_model_that_is_not_supported_is_refused_before_its_weights_are_fetched(
    tmp_path: Path,
) -> None:
    snapshot = hub_snapshot(tmp_path, "someone/gemma")
    config = {"architectures": ["GemmaForCausalLM"], "model_type": "gemma"}
    (snapshot / "config.json").write_text(json.dumps(config))
    answer = resolve_offline(tmp_path, "someone/gemma")
    assert answer.startswith("ModelError someone/gemma: architecture 'GemmaForCausalLM'")
