"""A cache entry is whole or not there, whatever happened to it or to its builder."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minillm_serve.models.cache import MANIFEST, Source, cache_root, ensure, problem
from minillm_serve.models.errors import ModelError

FILES = {"weights.bin": b"0123456789" * 1000, "sub/config.json": b"{}"}


class Builder:
    """Writes FILES, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, directory: Path) -> None:
        self.times += 1
        for name, content in FILES.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_bytes(content)


@pytest.fixture
def builder() -> Builder:
    return Builder()


@pytest.fixture
def source(builder: Builder) -> Source:
    return Source(name="toy", fingerprint="v1", build=builder)


@pytest.fixture
def said() -> list[str]:
    return []


def is_whole(target: Path) -> bool:
    return all((target / name).read_bytes() == content for name, content in FILES.items())


def test_an_entry_is_built_once_and_found_after_that(
    source: Source, builder: Builder, tmp_path: Path, said: list[str]
) -> None:
    root = tmp_path / "deep" / "cache"
    for _ in range(3):
        assert is_whole(ensure(source, root, full=True, say=said.append))
    assert (builder.times, said) == (1, [])
    assert sorted(p.name for p in root.iterdir()) == [".toy.lock", "toy"]


def _truncate(target: Path) -> None:
    os.truncate(target / "weights.bin", 5)


def _half_write(target: Path) -> None:
    (target / MANIFEST).unlink()
    _truncate(target)


def _empty(target: Path) -> None:
    for name in (*FILES, MANIFEST):
        (target / name).unlink()


def _lose_a_file(target: Path) -> None:
    (target / "sub/config.json").unlink()


def _break_the_manifest(target: Path) -> None:
    (target / MANIFEST).write_text('{"files": ')


def _empty_the_manifest(target: Path) -> None:
    (target / MANIFEST).write_text("[]")


def _age(target: Path) -> None:
    manifest = json.loads((target / MANIFEST).read_text())
    (target / MANIFEST).write_text(json.dumps({**manifest, "format": 0}))


def _replace_by_a_file(target: Path) -> None:
    target.rename(target.with_name("elsewhere"))
    target.write_text("not a directory")


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (_truncate, "weights.bin has 5 bytes instead of 10,000"),
    "half-written": (_half_write, "manifest.json is missing or damaged"),
    "empty": (_empty, "manifest.json is missing or damaged"),
    "without a file": (_lose_a_file, "sub/config.json is missing"),
    "with a broken manifest": (_break_the_manifest, "manifest.json is missing or damaged"),
    "with an empty manifest": (_empty_the_manifest, "manifest.json is missing or damaged"),
    "of another version": (_age, "another version"),
    "replaced by a file": (_replace_by_a_file, "it is not there"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_repaired_with_one_line_saying_so(
    damage: str, source: Source, builder: Builder, tmp_path: Path, said: list[str]
) -> None:
    target = ensure(source, tmp_path)
    harm, what = DAMAGES[damage]
    harm(target)
    assert is_whole(ensure(source, tmp_path, say=said.append))
    assert builder.times == 2
    assert len(said) == 1
    assert what in said[0]
    assert "building it again" in said[0]


def test_an_altered_file_of_the_same_size_is_found_by_its_sha256(
    source: Source, builder: Builder, tmp_path: Path, said: list[str]
) -> None:
    target = ensure(source, tmp_path)
    with (target / "weights.bin").open("rb+") as stream:
        stream.seek(5000)
        stream.write(b"X")
    assert problem(target, "v1", full=False) is None  # what every start looks at
    assert problem(target, "v1", full=True) == "weights.bin has been altered"
    assert is_whole(ensure(source, tmp_path, full=True, say=said.append))
    assert "has been altered" in said[0]


def test_another_source_replaces_the_entry(
    source: Source, builder: Builder, tmp_path: Path, said: list[str]
) -> None:
    ensure(source, tmp_path)
    ensure(Source("toy", "v2", builder), tmp_path, say=said.append)
    assert builder.times == 2
    assert "its source has changed" in said[0]


def test_a_failed_build_leaves_the_old_entry_and_nothing_else(
    source: Source, tmp_path: Path
) -> None:
    target = ensure(source, tmp_path)

    def fail(directory: Path) -> None:
        (directory / "half").write_text("x")
        raise ModelError("no network")

    with pytest.raises(ModelError, match="no network"):
        ensure(Source("toy", "v2", fail), tmp_path, say=lambda _: None)
    assert is_whole(target)
    assert problem(target, "v1", full=True) is None
    assert sorted(p.name for p in tmp_path.iterdir()) == [".toy.lock", "toy"]


@pytest.mark.parametrize("inside", ["", "cache"])
def test_a_file_in_the_place_of_the_cache_is_named(
    source: Source, tmp_path: Path, inside: str
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    message = rf"since {re.escape(str(blocked))} is a file\. Remove .*MINILLM_SERVE_CACHE"
    with pytest.raises(ModelError, match=message):
        ensure(source, blocked / inside)


def test_a_cache_that_cannot_be_written_is_named(source: Source) -> None:
    nowhere = Path("/proc/self/no/such/cache")  # not even root may make a folder there
    with pytest.raises(ModelError, match=r"cannot be written.*MINILLM_SERVE_CACHE"):
        ensure(source, nowhere)


def test_too_full_a_disk_is_named_before_anything_is_fetched(
    builder: Builder, tmp_path: Path
) -> None:
    greedy = Source("toy", "v1", builder, disk_bytes=10**18)
    with pytest.raises(ModelError, match=r"needs 1000000000\.0 GB and"):
        ensure(greedy, tmp_path)
    assert builder.times == 0


def test_the_cache_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MINILLM_SERVE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == tmp_path / ".cache" / "minillm_serve"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "minillm_serve"
    monkeypatch.setenv("MINILLM_SERVE_CACHE", "~/own")
    assert cache_root() == tmp_path / "own"


# A process that builds slowly: it writes half a file, says so, and waits for leave to go on.
CHILD = """
import sys, time
from pathlib import Path
from minillm_serve.models.cache import Source, ensure
root, name = Path(sys.argv[1]), sys.argv[2]
def build(directory):
    (directory / "weights.bin").write_bytes(b"half")
    with (root.parent / "builds").open("a") as log: log.write(name + "\\n")
    while not (root.parent / "go").exists(): time.sleep(0.01)
    (directory / "weights.bin").write_bytes(b"whole")
(root.parent / ("started-" + name)).touch()
print(ensure(Source("toy", "v1", build), root))
"""


def start(root: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root), name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits until the other process has come that far; a minute means that it never will."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_processes_that_fetch_at_once_build_once_and_all_find_it(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    children = {name: start(root, name) for name in "abc"}
    wait_for(lambda: all((tmp_path / f"started-{name}").exists() for name in children))
    wait_for(lambda: (tmp_path / "builds").exists())
    (tmp_path / "go").touch()
    answers = [child.communicate(timeout=60) for child in children.values()]
    assert [child.returncode for child in children.values()] == [0, 0, 0], answers
    assert len((tmp_path / "builds").read_text().split()) == 1
    assert {out.strip() for out, _ in answers} == {str(root / "toy")}
    assert (root / "toy" / "weights.bin").read_bytes() == b"whole"


def test_a_builder_that_is_killed_leaves_no_entry_and_is_swept_away(
    source: Source, tmp_path: Path
) -> None:
    root = tmp_path / "cache"
    child = start(root, "victim")
    wait_for(lambda: (tmp_path / "builds").exists())
    child.kill()
    child.communicate(timeout=60)
    assert not (root / "toy").exists()
    assert list(root.glob(".toy.tmp-*"))
    assert is_whole(ensure(source, root))
    assert sorted(p.name for p in root.iterdir()) == [".toy.lock", "toy"]
