"""What a wheel would carry: every folder with code, every file that code reads."""

from __future__ import annotations

import fnmatch
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what setup.py passes to setuptools, which need not be installed."""
    told: dict[str, Any] = {}
    names = ("setuptools", "setuptools.command", "setuptools.command.build_py")
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    package: Any = sys.modules["setuptools"]
    package.setup = told.update
    package.find_packages = _find_packages
    sys.modules["setuptools.command.build_py"].build_py = object  # type: ignore[attr-defined]
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(ROOT / "setup.py"))
    return told


def _find_packages(where: str) -> list[str]:
    """As setuptools does it: folders below with an `__init__.py`, whose parents have one."""
    found: list[str] = []
    for path in sorted(Path(where).rglob("__init__.py")):
        name = ".".join(path.parent.relative_to(where).parts)
        parents = [Path(where).joinpath(*name.split(".")[:i]) for i in range(1, len(name.split(".")))]
        if name and all((parent / "__init__.py").exists() for parent in parents):
            found.append(name)
    return found


def test_every_folder_with_code_is_packaged(given: dict[str, Any]) -> None:
    shipped = [name.split(".")[1] for name in given["packages"] if name.count(".") == 1]
    folders = {
        "mirlo." + ".".join(path.parent.relative_to(ROOT).parts)
        for name in shipped
        for path in (ROOT / name).rglob("*.py")
    }
    assert folders == set(given["packages"]) - {"mirlo"}


def test_every_file_is_packaged(given: dict[str, Any]) -> None:
    for package in given["packages"]:
        folder = ROOT.joinpath(*package.split(".")[1:])
        if folder == ROOT:
            continue
        patterns = ("*.py", *given["package_data"].get(package, ()))
        files = [path.name for path in folder.iterdir() if path.is_file()]
        assert [name for name in files if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)] == []
