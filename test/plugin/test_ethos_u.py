"""The package `plugins/ethos-u`: installed, and its own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ENVIRONMENT, ROOT, output_of

PACKAGE = ROOT / "plugins" / "ethos-u"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package installed."""
    folder, source = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("source")
    for path in [PACKAGE / "pyproject.toml", PACKAGE / "README.md", *(PACKAGE / "mirlo_ethos_u").glob("*.py")]:
        copy = source / path.relative_to(PACKAGE)
        copy.parent.mkdir(exist_ok=True, parents=True)
        copy.write_bytes(path.read_bytes())
    command = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", folder, source]
    output_of(_python([folder], *command))
    return folder


def _python(folders: list[Path], *arguments: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*map(str, folders), ENVIRONMENT["PYTHONPATH"]])
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**ENVIRONMENT, "PYTHONPATH": path})


@pytest.mark.parametrize("chosen", ["not models", pytest.param("", marks=pytest.mark.sample(0))])
def test_its_own_tests_pass(site: Path, chosen: str) -> None:
    arguments = ["-q", "-rs", "-c", PACKAGE / "pyproject.toml", "--rootdir", PACKAGE, "-k", chosen, PACKAGE / "tests"]
    done = _python([site], "pytest", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    if skipped:
        pytest.skip(skipped[0].rpartition(": ")[2])
