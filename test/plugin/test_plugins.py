"""The packages of `plugins`: installed, and their own tests."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from commands import ROOT, install, run_script

PLUGINS = ROOT / "plugins"
COLLECTED = set(re.findall(r'"plugins/(\w+)/tests"', ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8")))
"""Packages whose tests are collected with those of Mirlo: `testpaths`."""
NO_TESTS = 5
"""The exit code of pytest where all modules with tests are skipped."""


@pytest.fixture(scope="module", params=sorted(path.parent.name for path in PLUGINS.glob("*/pyproject.toml")))
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a package, and a folder in which it is installed."""
    package: Path = PLUGINS / request.param
    folder, source = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("source")
    modules = package.glob("mirlo_*/**/*.*")
    for path in [package / "pyproject.toml", package / "README.md", *modules]:
        if path.suffix == ".pyc":
            continue
        copy = source / path.relative_to(package)
        copy.parent.mkdir(exist_ok=True, parents=True)
        copy.write_bytes(path.read_bytes())
    install(source, folder)
    return package, folder


def short_options(package: Path) -> list[str]:
    """Return the options of pytest that choose the tests of a package which run always; the others run nightly."""
    text = (package / "pyproject.toml").read_text(encoding="utf-8")
    (options,) = re.findall(r'^\[tool\.mirlo\]\n(?:#.*\n)*short = "(.*)"$', text, re.MULTILINE)
    return shlex.split(options)


@pytest.mark.parametrize("path", sorted(PLUGINS.glob("*/pyproject.toml")), ids=lambda path: path.parent.name)
def test_its_tests_find_their_modules_from_its_folder(path: Path) -> None:
    """Without options of its own, `make test-NAME` would run with those of the repository."""
    options = path.read_text(encoding="utf-8").partition("[tool.pytest.ini_options]\n")[2]
    assert re.search(r'^pythonpath = \["tests', options, re.MULTILINE) and 'testpaths = ["tests"]' in options


@pytest.mark.sample(1)
def test_its_own_tests_pass(package: tuple[Path, Path], whole: bool) -> None:
    if whole and package[0].name not in COLLECTED:
        pytest.skip("test_all_of_its_own_tests_pass runs them")
    _pass(*package, short_options(package[0]))


@pytest.mark.sample(0)
def test_all_of_its_own_tests_pass(package: tuple[Path, Path]) -> None:
    if package[0].name in COLLECTED:
        pytest.skip("they are collected with those of Mirlo")
    _pass(*package, [])


def _pass(path: Path, site: Path, chosen: list[str]) -> None:
    arguments = ["-q", "-rs", "-c", path / "pyproject.toml", "--rootdir", path, *chosen, path / "tests"]
    done = run_script("-m", "pytest", *arguments, site=[site])
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert done.returncode == 0 or done.returncode == NO_TESTS and skipped, done.stdout + done.stderr
    if skipped:
        pytest.skip(skipped[0].rpartition(": ")[2])
