"""The modules of `mirlo.extend`: exports, imports, former names, and users."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest
from commands import ROOT

import mirlo.extend
from mirlo.extend.codegen import register_in
from mirlo.runtime import extenders
from mirlo.runtime.extenders import installed_modules
from mirlo.runtime.known_packages import PACKAGES

NOT_EXPORTED = ("record_extenders", "former_names")
"""Functions that each module calls."""
MODULES = sorted(path.stem for path in (ROOT / "extend").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("module", MODULES)
def test_all_imported_names_are_exported(module: str) -> None:
    tree = ast.parse((ROOT / "extend" / f"{module}.py").read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
        if alias.name not in NOT_EXPORTED
    }
    loaded = importlib.import_module(f"mirlo.extend.{module}")
    assert set(loaded.__all__) == imported and list(loaded.__all__) == sorted(loaded.__all__)


def test_the_table_of_modules_is_complete() -> None:
    listed = [line.split("`")[1] for line in str(mirlo.extend.__doc__).splitlines() if line.startswith("| `")]
    assert sorted(listed) == MODULES


def test_old_names_are_those_of_the_modules_and_warn() -> None:
    for name, module in mirlo.extend._MODULES.items():
        if f"extend.{module}.{name}" in PACKAGES["names"]:
            continue  # the tests of the package
        with pytest.warns(DeprecationWarning, match=rf"mirlo\.extend\.{name} is now mirlo\.extend\.{module}\.{name}"):
            old = getattr(mirlo.extend, name)
        assert old is getattr(importlib.import_module(f"mirlo.extend.{module}"), name)
    assert set(mirlo.extend._MODULES) <= set(dir(mirlo.extend))
    with pytest.raises(AttributeError, match="module 'mirlo.extend' has no attribute 'legalise'"):
        _ = mirlo.extend.legalise


@pytest.mark.parametrize(
    ("module", "former", "name"),
    [
        ("schedules", "WordsPlan", "schedules.PrimitivesPlan"),
        ("schedules", "words_of", "schedules.schedule_of"),
        ("inspect", "Word", "inspect.ScriptName"),
        ("ranks", "MOST_RANKS", "options.MOST_RANKS"),
    ],
)
def test_former_names_warn(module: str, former: str, name: str) -> None:
    door = importlib.import_module(f"mirlo.extend.{module}")
    with pytest.warns(DeprecationWarning, match=rf"{module}\.{former} is now mirlo\.extend\.{name}"):
        old = getattr(door, former)
    place, _, attribute = name.partition(".")
    assert old is getattr(importlib.import_module(f"mirlo.extend.{place}"), attribute)
    with pytest.raises(AttributeError, match="no attribute 'words'"):
        _ = door.words


@pytest.mark.parametrize(
    ("name", "module", "now"),
    [
        ("RuleChoice", "mirlo.passes.rule_choices", "NamedChoice"),
        ("WordsPlan", "mirlo.extend.schedules", "PrimitivesPlan"),
        ("words_of", "mirlo.extend.schedules", "schedule_of"),
    ],
)
def test_names_that_changed_are_those_of_the_address_too(name: str, module: str, now: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"mirlo\.extend\.{name} is now {module}\.{now}$"):
        old = getattr(mirlo.extend, name)
    assert old is getattr(importlib.import_module(module), now)


def test_loaders_need_no_compiler() -> None:
    code = (
        "import sys, mirlo.extend.runtime\n"
        "folders = ('mirlo.dialects', 'mirlo.passes', 'mirlo.frontends', 'mirlo.targets', 'mirlo.driver')\n"
        "print([m for m in sys.modules if m.startswith(folders) or 'mlir' in m or m == 'onnx'])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_no_other_module_loads_the_command_line() -> None:
    others = ", ".join(f"mirlo.extend.{module}" for module in MODULES if module != "command")
    code = (
        f"import sys, {others}\nprint([m for m in sys.modules if m.startswith('mirlo.tools.cli') or m == 'argparse'])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"
    code = "import sys, mirlo.extend.command\nprint('mirlo.tools.cli' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout == "True\n"


def test_modules_that_extend_the_compiler_are_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extenders, "_EXTENDERS", {})
    exec("from mirlo.extend.rules import legalize", {"__name__": "mirlo_unit.rules"})
    exec("import mirlo.extend.ops\nmirlo.extend.ops.DialectOp", {"__name__": "script"})
    with pytest.warns(DeprecationWarning):
        exec("import mirlo.extend\nmirlo.extend.legalize", {"__name__": "old"})
    exec("import mirlo.extend.ops", {"__name__": "unused"})
    assert extenders.foreign_extenders() == ["mirlo_unit.rules", "script", "old"]
    monkeypatch.setattr(extenders, "installed_modules", lambda: ["mirlo_unit"])
    assert extenders.foreign_extenders() == ["script", "old"], "an installed package is part of the key of the cache"
    assert "mirlo" not in installed_modules()


@pytest.mark.parametrize("module", MODULES)
def test_each_module_records_its_users(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extenders, "_EXTENDERS", {})
    name = importlib.import_module(f"mirlo.extend.{module}").__all__[0]
    exec(f"from mirlo.extend.{module} import {name}", {"__name__": "script"})
    assert "script" in extenders.foreign_extenders()


def test_what_a_user_registered_stays() -> None:
    def function() -> None: ...

    names = ("mirlo_tflite.ops", "user", "mirlo.frontends")
    first, own, later = (FunctionType(function.__code__, {"__name__": name}) for name in names)
    table: dict[str, object] = {}
    for each in (first, own, later):
        register_in(table, ["a"])(each)
    register_in(table, ["b"])(later)
    assert table == {"a": own, "b": later}


@pytest.mark.parametrize("module", MODULES)
def test_each_module_can_be_the_first_import(module: str) -> None:
    """Options, targets and rules of installed packages import these modules while the core is loaded."""
    program = f"import mirlo.extend.{module}, mirlo.driver.options"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
