"""The loader with the real bindings of CUDA's driver, over a fake library that checks the arguments.

The other tests of the loader have a stand-in for the bindings, which takes what the loader believes that these take.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "stand_in"
PACKAGE = Path(__file__).parents[4]
pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.skipif(find_spec("cuda") is None, reason="cuda-bindings is not installed"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the library."""
    folder = tmp_path_factory.mktemp("driver")
    made = ["-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(SOURCES / "libcuda.c")]
    subprocess.run(["cc", "-Wall", "-Werror", *made], check=True)
    return folder


def _given(what: str, library: Path, tmp_path: Path) -> tuple[list[str], str]:
    """Return what the driver received in a test, and what that wrote."""
    log = tmp_path / "log"
    folders = os.pathsep.join([str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "STAND_IN_LOG": str(log), "LD_LIBRARY_PATH": str(library), "PYTHONPATH": folders}
    command = [sys.executable, str(SOURCES / "calls.py"), what]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines(), done.stdout


def test_tensors_of_the_cpu(library: Path, tmp_path: Path) -> None:
    given, _ = _given("cpu", library, tmp_path)
    loaded, recorded = given.index("matmul_kernel is loaded"), given.index("record 0x5000 mode 2")
    assert loaded < recorded, "kernels are loaded before a graph is recorded"
    launch = next(i for i, line in enumerate(given) if " x 1 x 1 of 384 x 1 x 1" in line)
    shared = re.search(r"(\d+) bytes, on 0x5000", given[launch])
    assert shared and f"matmul_kernel may have {shared[1]} of 8" in given
    # Maps are given as they are, at multiples of 128 bytes; tensors by their addresses.
    assert given[launch + 1 : launch + 3] == [
        "  0: 128 bytes, 0 over: kind 9 dims 1024 1536 lines 2048 box 64 128 swizzle 3 promotion 3",
        "  1: 128 bytes, 0 over: kind 9 dims 4096 1024 lines 8192 box 64 64 swizzle 3 promotion 3",
    ]
    assert re.fullmatch(r"  2: [1-9]\d+", given[launch + 3]) and int(given[launch + 3][5:]) % 256 == 0
    after = [line for line in given[launch + 4 :] if not line.startswith(("mark", " "))]
    assert after[:6] == [
        "fetch 12582912 on 0x5000", "prepare 0x6000 flags 0", "run 0x7000 on 0x5000", "wait for 0x5000",
        "run 0x7000 on 0x5000", "wait for 0x5000",
    ]  # fmt: skip


def test_tensors_of_the_device(library: Path, tmp_path: Path) -> None:
    given, _ = _given("device", library, tmp_path)
    order = ["mark 0x4d", "hold 0x5000", "upload 1280 on 0x5000", "mark 0x5000", "hold 0x4d", "hold 0x2", "fetch 20"]
    at = -1
    for line in order:
        at = given.index(line, at + 1)
    launch = next(i for i, line in enumerate(given) if " of 128 x 1 x 1" in line)
    numbers = [line for line in given[launch + 1 :] if line.startswith("  ")]
    assert "  1: 5" in numbers, "sizes are given as numbers of 64 bits"


def test_what_the_driver_says_of_code_is_told(library: Path, tmp_path: Path) -> None:
    _, said = _given("refused", library, tmp_path)
    assert said.startswith("loading kernels (ptxas fatal : no such instruction) failed: CUDA_ERROR_INVALID_PTX")
