"""The packages of `plugins`: installed, and their own tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import ROOT, install, run_script

PLUGINS = ROOT / "plugins"


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


SHORT = {
    "cortex-m": "longest_path",
    "ethos-u": "missing_tools or scales_become or unknown",
    "npm": "onnx_runtime or files or fit or data",
    "onnxruntime-ep": "has_a_device or strings or options",
    "systolic": "queues_wait or missing_tools or not_placed",
    "webgpu": "not whole_models",
}
"""The tests of each package that run always; the others run nightly."""


@pytest.mark.sample(1)
def test_its_own_tests_pass(package: tuple[Path, Path]) -> None:
    _pass(*package, SHORT[package[0].name])


@pytest.mark.sample(0)
def test_all_of_its_own_tests_pass(package: tuple[Path, Path]) -> None:
    _pass(*package, "")


def _pass(path: Path, site: Path, chosen: str) -> None:
    arguments = ["-q", "-rs", "-c", path / "pyproject.toml", "--rootdir", path, "-k", chosen, path / "tests"]
    done = run_script("-m", "pytest", *arguments, site=[site])
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    if skipped:
        pytest.skip(skipped[0].rpartition(": ")[2])
