"""The indices of packages whose modules are imported on demand."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from mirlo.dialects.core.installed import ModuleIndex

KEYS = Path(__file__).parents[1] / "support" / "registered_keys.py"


@pytest.fixture(scope="module")
def registered() -> dict[str, dict[str, list[str]]]:
    """Return what each module registers, by package, in a process of its own."""
    done = subprocess.run([sys.executable, str(KEYS)], capture_output=True, text=True, check=True)
    found: dict[str, dict[str, list[str]]] = json.loads(done.stdout)
    return found


def test_indices_have_what_modules_register(registered: dict[str, dict[str, list[str]]]) -> None:
    assert len(registered) == 6
    for package, modules in registered.items():
        lines = import_module(package).INDEX.replace("\n    ", " ").strip().splitlines()
        found = {name: keys.split() for name, _, keys in (line.partition(": ") for line in lines)}
        for name in modules.keys() | found.keys():
            expected = f"{name}: {' '.join(modules.get(name, []))}"
            assert sorted(found.get(name, [])) == modules.get(name, []), f"{package}.INDEX: expected '{expected}'"


def test_a_key_imports_its_modules_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "indexed_for_tests"
    package.mkdir()
    package.joinpath("__init__.py").write_text('INDEX = """\nfirst: exp\n    domain:log\nlast: exp\n"""\n')
    for name in ("first", "last"):
        package.joinpath(f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    index = ModuleIndex("indexed_for_tests")

    def imported() -> set[str]:
        return {name for name in ("first", "last") if f"indexed_for_tests.{name}" in sys.modules}

    assert index.waiting() == {"exp", "domain:log"}
    index.load("other")
    assert imported() == set()
    index.load("domain:log")
    assert imported() == {"first"} and index.waiting() == {"exp"}
    index.load("exp")
    assert imported() == {"first", "last"} and not index.waiting()
    assert [index.rank(f"indexed_for_tests.{name}") for name in ("first", "last", "none")] == [0, 1, None]
