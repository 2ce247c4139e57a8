"""Packages of `plugins` stand on the public modules of Mirlo, and Mirlo names none of them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ROOT

from mirlo.dialects.core.installed import GROUPS
from mirlo.release.touched_packages import changed_paths, touched_packages
from mirlo.runtime.known_packages import PACKAGES, install_command

PLUGINS = ROOT / "plugins"
NAMES = sorted(path.parent.name for path in PLUGINS.glob("*/pyproject.toml"))
PUBLIC = re.compile(r"mirlo(\.(extend|testing|benchmarks)(\.\w+)*)?")
"""Benchmarks are of the repository: measurements, and tests of their models, need a clone."""
FOLDERS = ("dialects", "frontends", "passes", "targets", "runtime", "driver", "tools", "extend")
OF_ACCELERATORS = {"cortex-m", "ethos-u", "npm", "onnxruntime-ep", "systolic", "tensix", "webgpu"}
"""Examples of what others write: Mirlo does not know how to install them."""


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the module of each import of Mirlo, in functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "mirlo")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mirlo":
            yield node.lineno, str(node.module)


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the first part of the name of each imported module, in functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).split(".")[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_package_imports_public_modules_only(name: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in sorted((PLUGINS / name).rglob("*.py"))
        for line, module in imported(path)
        if not PUBLIC.fullmatch(module)
    ]
    assert not wrong, "import mirlo, mirlo.extend or mirlo.testing"


@pytest.mark.parametrize("name", NAMES)
def test_tests_of_a_package_need_no_clone(name: str) -> None:
    """What they share with the core's tests is in `mirlo.testing`: they run beside installed wheels."""
    metadata = (PLUGINS / name / "pyproject.toml").read_text(encoding="utf-8")
    paths = re.findall(r"^pythonpath = \[(.*)\]$", metadata, re.MULTILINE)
    outside = [
        path for line in paths for path in re.findall(r'"([^"]*)"', line) if ".." in path or path.startswith("/")
    ]
    assert not outside, "import mirlo.testing in place of modules of other folders"
    shared = {path.stem for path in (ROOT / "test").rglob("*.py") if not path.name.startswith(("test_", "conftest"))}
    own = {path.stem for path in (PLUGINS / name).rglob("*.py")}
    wrong = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in sorted((PLUGINS / name).rglob("*.py"))
        for module in imported_modules(path)
        if module in shared - own
    ]
    assert not wrong, "import mirlo.testing in place of modules of test/support"


def test_mirlo_names_no_package() -> None:
    modules = {path.name for name in NAMES for path in (PLUGINS / name).glob("mirlo_*")}
    naming = [
        f"{path.relative_to(ROOT)}: {word}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for word in re.findall(r"\bmirlo_\w+", path.read_text(encoding="utf-8"))
        if word in modules
    ]
    assert not naming


def test_mirlo_names_no_language_model() -> None:
    """Only the table of packages describes their purposes."""
    naming = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(r"language.model", path.read_text(encoding="utf-8"), re.IGNORECASE)
    ]
    assert naming == ["runtime/known_packages.py"]


def _declared(name: str) -> dict[str, set[str]]:
    """Return the names by group of entry points in the metadata of a package."""
    text = (PLUGINS / name / "pyproject.toml").read_text(encoding="utf-8")
    groups = re.findall(r'^\[project\.entry-points\."(mirlo\.\w+)"\]\n((?:[^\[\n].*\n)*)', text, re.MULTILINE)
    return {group: set(re.findall(r'^"?([\w.-]+)"? =', lines, re.MULTILINE)) for group, lines in groups}


def test_known_packages_are_those_of_the_folder() -> None:
    expected: dict[str, dict[str, str]] = {}
    for name in NAMES:
        for group, offered in _declared(name).items():
            if name not in OF_ACCELERATORS:
                expected.setdefault(group.removeprefix("mirlo."), {}).update(dict.fromkeys(offered, f"mirlo-{name}"))
    assert expected == PACKAGES and {f"mirlo.{group}" for group in PACKAGES} <= set(GROUPS)
    assert install_command("mirlo.frontends", "sklearn") == "pip install mirlo-sklearn"
    assert install_command("mirlo.frontends", "none") is None and install_command("none", "sklearn") is None


@pytest.mark.parametrize("name", NAMES)
def test_a_package_has_its_test_command(name: str) -> None:
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", f"test-{name}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    last = done.stdout.strip().splitlines()[-1:]
    assert done.returncode == 0 and "pytest" in last[0] and name.partition("-")[0] in done.stdout, done.stderr


def test_continuous_integration_tests_the_packages_that_a_change_touches() -> None:
    paths = ["README.md", "plugins/sklearn/README.md", "plugins/editor/tests/test_server.py", "plugins/vscode/a.js"]
    assert touched_packages(paths) == ["editor", "sklearn"]
    assert changed_paths("no-such-commit") == []
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert 'release.touched_packages "$base"' in text and 'make "test-$package"' in text


@pytest.mark.parametrize("name", NAMES)
def test_a_package_has_its_page_and_its_tests(name: str) -> None:
    folder = PLUGINS / name
    assert (folder / "README.md").exists() and list((folder / "tests").rglob("test_*.py"))
    assert name in OF_ACCELERATORS or (folder / "CHANGELOG.md").exists()
