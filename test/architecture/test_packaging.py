"""What a wheel would carry: every folder with code, every file that code reads."""

from __future__ import annotations

import fnmatch
import re
import runpy
import sys
import types
from importlib import metadata
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
    """Return the packages as setuptools finds them: folders below with an `__init__.py`, whose parents have one."""
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


MODULES_OF_PACKAGES = {"torch-mlir": "torch_mlir", "pillow": "PIL", "onednn-cpu-gomp": "dnnl"}
"""By package, the module that it installs where the names differ."""


def _imported_roots(path: Path, shared: dict[str, Path]) -> set[str]:
    """Return the packages that a test module imports when it is collected, but for those it is skipped without."""
    roots: set[str] = set()
    for line in re.sub(r'"""(?s:.*?)"""', "", path.read_text(encoding="utf-8")).splitlines():
        if re.match(r"(\w+ = )?pytest\.importorskip\(", line):
            return roots
        imported = re.match(r"(?:import|from) (\w+)", line)
        if imported:
            root = imported[1]
            roots |= _imported_roots(shared[root], shared) if root in shared else {root}
    return roots


def test_tests_import_what_their_command_installs() -> None:
    """`make test` installs neither PyTorch nor JAX: tests that need them are skipped, and do not end the whole run."""
    lines = [
        line for line in metadata.requires("mirlo") or () if "extra ==" not in line or re.search("== .test.", line)
    ]
    packages = {re.split(r"[^\w-]", line)[0] for line in lines}
    installed = {MODULES_OF_PACKAGES.get(name, name).replace("-", "_") for name in packages}
    installed |= {"mirlo", *sys.stdlib_module_names}
    tests = [path for path in (ROOT / "test").rglob("*.py") if "Inputs" not in path.parts]
    shared = {path.stem: path for path in tests}
    installed |= {path.parent.name for path in tests if path.name == "__init__.py"}  # packages of tests
    found = {path: _imported_roots(path, shared) for path in tests if path.name.startswith("test_")}
    assert {str(path): roots - installed for path, roots in found.items() if roots - installed} == {}
