"""What the GPU targets compute, operator by operator, compared with numpy."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from commands import ROOT
from devices import needs_cuda, needs_vulkan

from mirlo.tools.conformance.check import FAILED, OK, WRONG, check_target
from mirlo.tools.conformance.matrix import markdown

PAGE = ROOT / "docs" / "support-matrix-spirv.md"


@pytest.mark.sample(0)
@needs_vulkan()
def test_page_of_spirv_is_up_to_date() -> None:
    matrix = check_target("spirv")
    assert matrix.unreached == ()
    assert markdown(matrix) == PAGE.read_text(encoding="utf-8"), (
        "run mirlo check-target spirv --markdown > docs/support-matrix-spirv.md"
    )


@needs_cuda()
def test_everything_is_computed_on_nvvm() -> None:
    matrix = check_target("nvvm")
    assert (matrix.count(WRONG), matrix.count(FAILED)) == (0, 0) and matrix.count(OK)


def _sanitizer() -> str | None:
    return shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")


@needs_cuda()
@pytest.mark.skipif(_sanitizer() is None, reason="no compute-sanitizer: install CUDA's tools")
@pytest.mark.parametrize(
    ("tool", "name", "which"),
    [
        *((tool, name, "nvvm") for tool in ("memcheck", "racecheck", "synccheck")
          for name in ("test_schedules.py", "test_attention.py")),
        # Warpgroups, copies by the engine and clusters; racecheck would take hours.
        *((tool, "test_nvvm_products.py", "bf16 or i8") for tool in ("memcheck", "synccheck")),
    ],
)  # fmt: skip
def test_kernels_are_clean(tool: str, name: str, which: str) -> None:
    file = str(ROOT / "test/targets/gpu" / name)
    tests = [sys.executable, "-m", "pytest", "-q", "-x", file, "-k", which]
    command = [str(_sanitizer()), "--tool", tool, "--error-exitcode", "9", *tests]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
