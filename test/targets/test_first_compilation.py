"""The first compilation of a process registers all rules of its target: none depends on what was imported before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import F32, make_model, node

COMPILE = "import sys, mirlo; mirlo.compile(sys.argv[1], sys.argv[2], jobs=1, cache=False, load=False, opt_level=0)"
OPERATORS = [
    node("MatMul", "x x", "product"),
    node("Softmax", "product", "shares"),
    node("Tanh", "shares", "bounded"),
    node("Slice", "bounded starts ends", "sliced"),
    node("CumSum", "sliced axis", "sums"),
    node("ReduceProd", "sums", "y"),
]


@pytest.mark.parametrize("target", ["llvm", "c", "spirv", "nvvm{chip=sm_80}"])
def test_first_compilation_of_a_process(tmp_path: Path, target: str) -> None:
    constants = {"starts": np.array([1]), "ends": np.array([5]), "axis": np.array(1)}
    model = make_model(OPERATORS, {"x": (F32, (8, 8))}, ["y"], constants)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    done = subprocess.run([sys.executable, "-c", COMPILE, path, target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
