"""The packages of `plugins`: installed, and their own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ENVIRONMENT, ROOT, output_of

PLUGINS = ROOT / "plugins"
WHOLE = pytest.mark.sample(0)


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
    command = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", folder, source]
    output_of(_python([folder], *command))
    return package, folder


def _python(folders: list[Path], *arguments: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*map(str, folders), ENVIRONMENT["PYTHONPATH"]])
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**ENVIRONMENT, "PYTHONPATH": path})


SHORT = {
    "cortex-m": "this_machine and wake_word or boards and m4 or longest_path or generated and m55 and 3",
    "ethos-u": "not models",
    "npm": "onnx_runtime or files or fit or data",
    "onnxruntime-ep": "has_a_device or sizes_of_each_call or strings or context_models or options or part",
    "webgpu": "not whole_models",
    "systolic": "test_unit or test_operators and (Sigmoid or MaxPool) or test_results and autoencoder and not rows",
}
"""The tests of each package that run always; the others run nightly."""


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=WHOLE)])
def test_its_own_tests_pass(package: tuple[Path, Path], whole: bool) -> None:
    path, site = package
    chosen = "" if whole else SHORT[path.name]
    arguments = ["-q", "-rs", "-c", path / "pyproject.toml", "--rootdir", path, "-k", chosen, path / "tests"]
    done = _python([site], "pytest", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    if skipped:
        pytest.skip(skipped[0].rpartition(": ")[2])
