"""Digests of the compiler's sources: whatever file of it changes, code that was cached before is not used."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import ROOT

from mirlo.runtime import sources
from mirlo.runtime.sources import CODE_FOLDERS, MODEL_FOLDERS, code_version, compiler_digest, digest_of_sources

EDITS: dict[str, Callable[[Path], object]] = {
    "change": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "remove": Path.unlink,
    "rename": lambda path: path.rename(path.with_name(f"other_{path.name}")),
    "move": lambda path: path.rename(path.parent.parent / path.name),
    "add": lambda path: path.with_name("added.tbl").write_text("1"),
    "add a folder": lambda path: _write(path.parent / "added" / "rules.json"),
}


def _write(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("1")


def _clear() -> None:
    for function in (sources._digest_of_folder, sources.compiler_digest):
        function.cache_clear()


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Compute the digests from a copy of the package."""
    for folder in MODEL_FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    _clear()
    yield tmp_path
    monkeypatch.undo()
    _clear()


@pytest.mark.sample(0)
def test_any_change_of_any_file_is_another_key(copy: Path) -> None:
    """The key of kernels covers each folder that the code generator imports, that of models two more."""
    rng = random.Random(0)
    keys = {(code_version(), compiler_digest(MODEL_FOLDERS))}
    for folder in MODEL_FOLDERS:
        for edit in EDITS.values():
            files = sorted(path for path in (copy / folder).rglob("*") if path.is_file())
            _clear()
            code = code_version()
            edit(rng.choice(files))
            _clear()
            assert (code_version() != code) == (folder in CODE_FOLDERS)
            keys.add((code_version(), compiler_digest(MODEL_FOLDERS)))
    assert len({model for _, model in keys}) == len(keys) == 1 + len(MODEL_FOLDERS) * len(EDITS)


def test_what_python_generates_is_no_change(copy: Path) -> None:
    before = code_version()
    (copy / "passes" / "__pycache__").mkdir()
    (copy / "passes" / "__pycache__" / "rules.pyc").write_bytes(b"1")
    _clear()
    assert code_version() == before


def test_a_link_to_nothing_is_no_error(tmp_path: Path) -> None:
    """Editors lock files with such links."""
    (tmp_path / "a.py").write_text("1")
    before = digest_of_sources([tmp_path])
    (tmp_path / ".#a.py").symlink_to("user@machine:1")
    assert digest_of_sources([tmp_path]) != before
