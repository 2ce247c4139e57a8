"""Each target's pipeline in a process of its own, which has imported nothing for another target."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import python

from mirlo.passes.targets import declared_target, target_names

TARGETS = [name for name in target_names() if type(declared_target(name)).__module__.startswith("mirlo.targets.")]
MODEL = """
func.func @main(%x: tensor<3x5xf32>) -> (tensor<3x5xf32>, tensor<3xf32>) {
  %y = "relax.negative"(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %s = "relax.reduce_sum"(%y) {axes = array<i64: 1>} : (tensor<3x5xf32>) -> tensor<3xf32>
  return %y, %s : tensor<3x5xf32>, tensor<3xf32>
}
"""


def test_the_targets_of_mirlo_are_found() -> None:
    assert {"c", "llvm", "nvvm", "spirv"} <= set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_the_pipeline_of_a_target_needs_no_other(target: str, tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(MODEL, encoding="utf-8")
    done = python("-m", "mirlo.tools.opt", path, f"--pipeline={target}", "-o", tmp_path / "planned.mlir")
    assert done.returncode == 0, done.stderr
    assert "scf." in (tmp_path / "planned.mlir").read_text(encoding="utf-8")
