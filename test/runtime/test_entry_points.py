"""Entry points and versions of installed packages are those that `importlib.metadata` finds."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from mirlo.runtime.entry_points import EntryPoint, declared_groups, installed_version, offered


def _install(folder: Path, name: str, entry_points: str, version: str = "1.0") -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: 9\n")
    (info / "entry_points.txt").write_text(entry_points)


def test_all_installed_packages() -> None:
    """Compare with the standard library: all entry points and versions of this environment."""
    expected = {
        (entry.group, entry.name, entry.value, distribution.name)
        for distribution in importlib.metadata.distributions()
        for entry in distribution.entry_points
    }
    groups = {group for group, *_ in expected}
    found = {(e.group, e.name, e.value, e.package) for group in groups for e in offered(group)}
    assert found == expected
    assert set(declared_groups()) == {group for group in groups if group.startswith("mirlo.")}
    names = {distribution.name for distribution in importlib.metadata.distributions()}
    assert {name: installed_version(name) for name in names} == {
        name: importlib.metadata.version(name) for name in names
    }


def test_the_first_package_of_a_name_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path / "a", "unit-x", "[mirlo.targets]\n# a comment\nx = unit_x.sub:TARGET [extra]\n", "2.0")
    _install(tmp_path / "b", "Unit.X", "[mirlo.targets]\nold = unit_x:TARGET\n")
    monkeypatch.setattr("sys.path", [str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "none")])
    assert [(e.name, e.value, e.package) for e in offered("mirlo.targets")] == [
        ("x", "unit_x.sub:TARGET [extra]", "unit-x")
    ]
    assert installed_version("unit_x") == "2.0" and installed_version("unit-y") is None


def test_what_an_entry_names_is_loaded() -> None:
    assert EntryPoint("x", "os.path:join", "g").load() is __import__("os").path.join
    assert EntryPoint("x", "pathlib:Path.cwd [extra]", "g").load() == Path.cwd
    assert EntryPoint("x", "os.path", "g").load() is __import__("os").path
    assert EntryPoint("x", "unit_y:TARGET", "g").package == "unit_y:TARGET"
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        EntryPoint("x", "no_such_module:X", "g").load()


def test_nothing_of_importlib_metadata_is_loaded() -> None:
    import subprocess
    import sys

    code = (
        "import sys, mirlo.driver.model_cache, mirlo.passes.targets as t; t.find_target('llvm'); mirlo.__version__;"
        "from mirlo.runtime.extenders import compiler_version; compiler_version();"
        "assert 'importlib.metadata' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
