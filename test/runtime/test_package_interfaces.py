"""Modules and former methods that packages offer, with a package made up for the test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mirlo
from mirlo.runtime import executable, extenders, former_names, known_packages
from mirlo.runtime.entry_points import EntryPoint
from mirlo.runtime.executable import Executable
from mirlo.runtime.extenders import extension_modules, foreign_extenders, installed_modules
from mirlo.runtime.known_packages import PACKAGES, PackageModules, package_modules
from mirlo.tools import folders
from mirlo.tools.folders import FolderError, FolderForm, folder_form

ENTRIES = [
    EntryPoint("unit", "unit_package.parts", "mirlo.modules"),
    EntryPoint("rows", "unit_package:rows", "mirlo.methods"),
    EntryPoint("width", "unit_package:WIDTH", "mirlo.methods"),
    EntryPoint("texts", "unit_package:TEXTS", "mirlo.folders"),
]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = tmp_path / "unit_package"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from pathlib import Path\n"
        "from mirlo.extend.command import FolderForm\n"
        "def rows(executable, count): return count + 1\n"
        "WIDTH = property(lambda executable: 7)\n"
        "TEXTS = FolderForm(lambda path: (Path(path) / 'text.txt').exists(), lambda path: f'{path}/model.onnx')\n"
    )
    (package / "parts" / "__init__.py").write_text("VALUE = 1\n")
    (package / "parts" / "inner.py").write_text("VALUE = []\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in (known_packages, executable, folders, extenders):
        monkeypatch.setattr(module, "offered", lambda group: [each for each in ENTRIES if each.group == group])
    monkeypatch.setattr(extenders, "declared_groups", lambda: sorted({each.group for each in ENTRIES}))
    finders, names = list(sys.meta_path), set(sys.modules)
    executable._method_entry.cache_clear()
    monkeypatch.setattr(sys, "meta_path", [each for each in finders if not isinstance(each, PackageModules)])
    sys.meta_path.append(PackageModules())
    yield
    executable._method_entry.cache_clear()
    for name in set(sys.modules) - names:
        if "unit" in name:
            del sys.modules[name]
    vars(mirlo).pop("unit", None)


@pytest.mark.usefixtures("installed")
def test_a_module_has_two_names() -> None:
    inner = importlib.import_module("mirlo.unit.inner")
    assert inner is importlib.import_module("unit_package.parts.inner")
    assert importlib.import_module("mirlo.unit") is importlib.import_module("unit_package.parts")
    assert package_modules() == ["unit"]
    with pytest.raises(ModuleNotFoundError, match="mirlo.none"):
        importlib.import_module("mirlo.none")


@pytest.mark.usefixtures("installed")
def test_a_missing_package_is_named() -> None:
    for name, package in PACKAGES["modules"].items():
        finder = PackageModules()
        with pytest.raises(ModuleNotFoundError, match=f"mirlo.{name} is in a package .* pip install {package}"):
            finder.find_spec(f"mirlo.{name}")


@pytest.mark.usefixtures("installed")
def test_former_methods_warn() -> None:
    executable = Executable.__new__(Executable)
    with pytest.warns(DeprecationWarning, match=r"Executable.rows is now unit_package.rows\(executable, ...\)"):
        assert executable.rows(4) == 5
    with pytest.warns(DeprecationWarning, match=r"Executable.width is now unit_package.WIDTH"):
        assert executable.width == 7
    for name, package in PACKAGES["methods"].items():
        with pytest.raises(AttributeError, match=f"Executable.{name} is a function of a package .* {package}"):
            getattr(executable, name)
    with pytest.raises(AttributeError, match="'Executable' object has no attribute 'columns'"):
        _ = executable.columns


@pytest.mark.usefixtures("installed")
def test_a_folder_is_opened_by_its_form(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"expected a folder of a known form \(texts\), .*pip install mirlo-llm"):
        folder_form(tmp_path)
    (tmp_path / "text.txt").write_text("")
    form = folder_form(tmp_path)
    assert isinstance(form, FolderForm) and form.open(str(tmp_path)) == f"{tmp_path}/model.onnx"
    assert form.quantize is None


@pytest.mark.usefixtures("installed")
def test_a_package_that_compiles_nothing_leaves_the_cache_on() -> None:
    importlib.import_module("unit_package")
    assert "unit_package" not in foreign_extenders()
    assert extension_modules() == [] and installed_modules() == ["unit_package"]


@pytest.mark.usefixtures("installed")
def test_former_names_of_public_modules_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("extend.frontend.rows", "unit_package:rows", "mirlo.names")
    monkeypatch.setattr(former_names, "offered", lambda group: [entry] if group == entry.group else [])
    with pytest.warns(DeprecationWarning, match=r"mirlo.extend.frontend.rows is now unit_package.rows") as caught:
        rows = getattr(importlib.import_module("mirlo.extend.frontend"), "rows")  # noqa: B009
    assert rows is importlib.import_module("unit_package").rows and caught[0].filename == __file__
    for full, package in PACKAGES["names"].items():
        module, _, name = full.rpartition(".")
        with pytest.raises(ModuleNotFoundError, match=f"mirlo.{full} is in a package .* pip install {package}"):
            getattr(importlib.import_module(f"mirlo.{module}"), name)
    with pytest.raises(AttributeError, match="module 'mirlo.extend.frontend' has no attribute 'columns'"):
        getattr(importlib.import_module("mirlo.extend.frontend"), "columns")  # noqa: B009
