"""Forms of files that packages open, with a package made up for the test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo.driver import model_cache
from mirlo.frontends import files
from mirlo.frontends.foreign import FrontendError
from mirlo.runtime.entry_points import EntryPoint
from mirlo.runtime.known_packages import PACKAGES

PROGRAM = """module {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %y = "relax.tanh"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
}"""
PACKAGE = f"""
from pathlib import Path
from mirlo.extend.files import FileForm

CONVERTED = []

def parse(content, name):
    from mirlo.extend.frontend import ir
    return ir.Module.parse(content)

def open_program(content, name):
    from mirlo.extend.frontend import ParameterStore, make_context
    with make_context():
        return parse(content, name), ParameterStore()

def convert(path):
    CONVERTED.append(path.name)
    return {PROGRAM!r}.encode()

IS_UNIT = lambda content: content[:4] == b"UNIT"
FORM = FileForm("Unit", (".unit",), IS_UNIT, parse, open_program, convert, ("unit-tool",))
PLAIN = FileForm("Plain", (".plain", ".onnx"), lambda content: True, parse, open_program)
FORMS = (FORM, PLAIN)
NONE = 3
"""


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """Return the entry points of the group, which the test may change."""
    (tmp_path / "unit_forms.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = [EntryPoint("unit", "unit_forms:FORMS", files.GROUP)]
    monkeypatch.setattr(files, "offered", lambda group: list(known))
    files._forms_of_packages.cache_clear()
    yield known
    files._forms_of_packages.cache_clear()
    sys.modules.pop("unit_forms", None)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.unit"
    path.write_bytes(b"UNIT 1")
    return path


@pytest.mark.usefixtures("entries")
def test_a_form_of_a_package_is_opened(model: Path) -> None:
    x = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_allclose(mirlo.compile(model, cache=False)(x), np.tanh(x), rtol=1e-6)
    assert files.forms_named(model) == "Unit" and mirlo.initial_states(model) == {}
    model.write_bytes(b"another")
    with pytest.raises(mirlo.MirloError, match=r"model.unit is no Unit file: its content is another, or damaged"):
        mirlo.compile(model)


@pytest.mark.parametrize("name", files.PACKAGES["file_forms"])
def test_states_of_a_program_whose_package_is_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "offered", lambda group: ())
    files._forms_of_packages.cache_clear()
    monkeypatch.setattr("mirlo.driver.models.has_form", lambda path: False)
    with pytest.raises(mirlo.MirloError, match=f"is a program of {name}, which a package opens that is not installed"):
        mirlo.initial_states(tmp_path / f"model.{name}")
    assert mirlo.initial_states(tmp_path / "model.onnx") == {}


@pytest.mark.usefixtures("entries")
def test_what_a_tool_converts_is_cached(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    releases = ["1.0"]
    monkeypatch.setattr(files, "installed_version", lambda name: releases[0] if name == "unit-tool" else None)
    monkeypatch.setattr(model_cache, "MIN_COMPILE_SECONDS", 0)
    monkeypatch.setattr("mirlo.driver.build.MIN_COMPILE_SECONDS", 0)
    monkeypatch.setattr(model_cache, "extended", lambda target: None)
    converted = importlib.import_module("unit_forms").CONVERTED
    for _ in range(2):
        mirlo.compile(model, cache=tmp_path / "cache")
    assert converted == ["model.unit"]
    releases[0] = "2.0"
    mirlo.compile(model, cache=tmp_path / "cache")
    model.write_bytes(b"UNIT 2")
    mirlo.compile(model, cache=tmp_path / "cache")
    assert converted == ["model.unit"] * 3


@pytest.mark.usefixtures("entries")
def test_files_without_a_tool_are_not_cached() -> None:
    assert files.tool_versions("model.plain") is None
    assert files.tool_versions("model.bin") is None
    assert files.tool_versions("MODEL.UNIT") == "unit-tool"


def test_no_package_is_asked_for_files_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "offered", lambda group: pytest.fail("asked"))
    for name in ("model.onnx", "MODEL.ONNX", "model.mirlo", "model.py"):
        assert not files.has_form(name) and files.missing_package(name) is None


def test_what_an_entry_point_must_name(entries: list[EntryPoint]) -> None:
    entries[:] = [EntryPoint("unit", "unit_forms:NONE", files.GROUP)]
    expected = "the entry point 'unit' of .* in mirlo.file_forms, unit_forms:NONE, names 3, an int: expected a FileForm"
    with pytest.raises(FrontendError, match=expected):
        files.has_form("model.unit")
    entries[:] = [EntryPoint("unit", "unit_forms:ABSENT", files.GROUP)]
    with pytest.raises(FrontendError, match=r"the form of files 'unit' of .* does not load: .*ABSENT"):
        files.has_form("model.unit")


@pytest.mark.parametrize("name", PACKAGES["file_forms"])
def test_a_missing_package_is_named(name: str, entries: list[EntryPoint], tmp_path: Path) -> None:
    """A program is recognized by its suffix, or by operations of the dialect of that name."""
    entries.clear()
    package = PACKAGES["file_forms"][name]
    expected = f"a program of {name}, which a package opens that is not installed: pip install {package}"
    by_name, by_content = tmp_path / f"model.{name}", tmp_path / "model.mlir"
    by_name.write_bytes(bytes(40))
    by_content.write_text(f"func.func @main(%x: tensor<4xf32>) {{\n  %y = {name}.tanh %x\n}}")
    for path in (by_name, by_content):
        with pytest.raises(mirlo.MirloError, match=expected):
            mirlo.compile(path, cache=False)
