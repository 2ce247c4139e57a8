"""Registering passes and finding them by name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mirlo.passes import registry
from mirlo.passes.options import options_of
from mirlo.passes.registry import (
    UPSTREAM_NAMES,
    Pass,
    RegistrationError,
    find_pass,
    load_all,
    load_plugin,
    option,
    register_pass,
    summary,
)
from mirlo.passes.upstream import find_upstream


def nothing(self: Any, op: Any, session: Any) -> None:
    """Do nothing, as a pass's run."""


def declare(**members: Any) -> type[Pass]:
    """Return a pass class with these members, not registered yet."""
    annotations = members.pop("annotations", {})
    body = {"__doc__": "Nothing.", "name": "registry-test", "run": nothing, "__module__": __name__}
    body |= members
    return dataclass(frozen=True)(type("Made", (Pass,), body | {"__annotations__": annotations}))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"name": ""}, "needs a name such as 'fold-constant', got ''"),
        ({"name": "FoldConstant"}, "got 'FoldConstant'"),
        ({"run": Pass.run}, "has no 'run' method"),
        ({"__doc__": ""}, "has no docstring"),
        ({"annotations": {"x": dict[str, int]}, "x": option(0, "help")}, "an option cannot have type dict"),
        ({"annotations": {"x": int}, "x": 3}, "declare it as option(default, 'one line of help')"),
    ],
)
def test_bad_declarations(members, message):
    with pytest.raises(RegistrationError, match=__name__) as caught:
        register_pass(declare(**members))
    assert message in str(caught.value)


def test_forgotten_dataclass():
    with pytest.raises(RegistrationError, match="put @dataclass"):
        register_pass(type("Plain", (Pass,), {"name": "registry-test", "run": nothing, "__doc__": "Nothing."}))


def test_duplicate_names_both_modules():
    register_pass(declare(name="registry-test-twice"))
    with pytest.raises(RegistrationError, match=f"'registry-test-twice' .* in {__name__} and in elsewhere"):
        register_pass(declare(name="registry-test-twice", __module__="elsewhere"))


def test_a_name_that_mlir_has_too():
    with pytest.raises(RegistrationError, match="'canonicalize' is the name of a pass of MLIR"):
        register_pass(declare(name="canonicalize"))


def test_every_pass_has_what_lists_and_help_show():
    passes = load_all()
    assert "verify" in passes
    for name, cls in passes.items():
        assert cls.name == name
        assert summary(cls)
        assert all(declared.help for declared in options_of(cls).values())


def test_looking_up_a_name_imports_only_its_module():
    code = (
        "import sys; from mirlo.passes.registry import find_pass; assert find_pass('verify').name == 'verify';"
        "assert find_pass('no-such-pass') is None;"
        "assert not [m for m in sys.modules if m.startswith('mirlo.passes.legalize')], sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_module_of_an_installed_distribution(tmp_path, monkeypatch):
    (tmp_path / "plugin_of_test.py").write_text(
        "from dataclasses import dataclass\n"
        "from mirlo.passes.registry import Pass, register_pass\n"
        "@register_pass\n@dataclass(frozen=True)\nclass P(Pass):\n"
        '    """Comes from elsewhere."""\n    name = "registry-test-plugin"\n'
        "    def run(self, op, session): pass\n"
    )
    info = tmp_path / "plugin_of_test-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-test\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.PLUGINS}]\nmine = plugin_of_test\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = find_pass("registry-test-plugin")
    assert found is not None
    assert summary(found) == "Comes from elsewhere."


def test_upstream_names_exist():
    assert [name for name in UPSTREAM_NAMES if find_upstream(name) is None] == []


@pytest.mark.parametrize(("old", "new"), sorted(registry.RENAMED.items()))
def test_old_name_of_a_pass_works_and_warns(old, new):
    with pytest.warns(DeprecationWarning, match=f"'{old}' is now called '{new}'"):
        assert find_pass(old) is find_pass(new) is not None


def test_a_plugin_imports_what_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "sizes_of_unit.py").write_text("TILE = 8\n")
    (tmp_path / "unit.py").write_text("from sizes_of_unit import TILE\n\nDOUBLE = 2 * TILE\n")
    load_plugin(str(tmp_path / "unit.py"))
    assert sys.modules["mirlo_plugin_unit"].DOUBLE == 16
