"""`mirlo new target`: a target with a legalization and the lowering of an intrinsic."""

from __future__ import annotations

from mirlo.tools.new import common

_MODULE = '''"""The target `@NAME@`: the CPU, with a unit for products in tiles. Change its rules, and run the tests."""

from mirlo.extend import Pipeline, Target, decline, find_target, intrinsic, legalize

TILE = 8


@legalize("relax.matmul", target="@NAME@")
def matmul(op, b):
    """Products of matrices in whole tiles."""
    dims = [*op.lhs.shape, *op.rhs.shape]
    if len(dims) != 4 or any(dim % TILE for dim in dims) or op.transpose_lhs or op.transpose_rhs:
        return decline("the unit multiplies matrices in whole tiles", tile=TILE, dims=dims)

    def body(p, x, y):
        shape = (x.shape[0], y.shape[1])
        return p.reduce("add", shape, (x.shape[1],), lambda i, j, k: x[i, k] * y[k, j], name="@NAME@_matmul")

    return b.call_prim(body, op.lhs, op.rhs)


@intrinsic("rsqrt", target="@NAME@")
def rsqrt(op, b):
    """By a square root and a division."""
    return 1.0 / b.sqrt(op.nums[0]) if op.dtype == "f32" else decline("the unit computes in f32", dtype=op.dtype)


def pipeline(options):
    return str(Pipeline.named("llvm", options).for_target("@NAME@"))


HELP = "the CPU with a unit for products"
TARGET = Target("@NAME@", HELP, parent="llvm", pipeline=pipeline, emit=find_target("llvm").emit)
'''

_CONFTEST = '''"""Tests run where the package is installed, and where it is not."""

from @NAME@ import TARGET

from mirlo.testing import use_target

use_target(TARGET)
'''

_TEST = '''"""The target `@NAME@`: what runs where, and what it computes."""

import re

import numpy as np
import pytest

from mirlo.testing import runs_as_numpy, stages_round_trip
from mirlo.tools.cli import main

MODEL = """
func.func @main(%x: tensor<{rows}x8xf32> {{relax.name = "x"}}, %w: tensor<8x16xf32> {{relax.name = "w"}})
    -> (tensor<{rows}x16xf32> {{relax.name = "y"}}) {{
  %0 = "relax.matmul"(%x, %w) : (tensor<{rows}x8xf32>, tensor<8x16xf32>) -> tensor<{rows}x16xf32>
  %1 = "relax.relu"(%0) : (tensor<{rows}x16xf32>) -> tensor<{rows}x16xf32>
  return %1 : tensor<{rows}x16xf32>
}}
"""


@pytest.mark.parametrize("rows", [8, 3])
def test_values(rows):
    runs_as_numpy(MODEL.format(rows=rows), lambda x, w: np.maximum(x @ w, 0), target="@NAME@")


def test_dynamic_rows():
    text = re.sub(r"tensor<3x(\\d+)xf32>", r'tensor<?x\\1xf32, #relax.dims<["n", \\1]>>', MODEL.format(rows=3))
    arrays = (np.ones((n, k), np.float32) for n, k in ((3, 8), (8, 16)))
    runs_as_numpy(text, lambda x, w: np.maximum(x @ w, 0), *arrays, target="@NAME@")


def test_stages():
    stages_round_trip(MODEL.format(rows=8), target="@NAME@")


def test_who_declines(tmp_path, capsys):
    (tmp_path / "model.mlir").write_text(MODEL.format(rows=3))
    assert main(["explain", str(tmp_path / "model.mlir"), "--target", "@NAME@"]) == 0
    assert "the unit multiplies matrices in whole tiles" in capsys.readouterr().out


def test_conformance():
    assert main(["check-target", "@NAME@", "--operator", "relax.matmul", "--operator", "tir.rsqrt"]) == 0
'''

_LIT = """// RUN: mirlo-opt %s --load-pass-plugin %plugin --legalize=target=@NAME@ | FileCheck %s

// CHECK: @NAME@_matmul
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "relax.matmul"(%x, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
"""


def files(name: str) -> dict[str, str]:
    """Return the files of the package."""
    texts = {
        f"{name}.py": _MODULE,
        "tests/conftest.py": _CONFTEST,
        f"tests/test_{name}.py": _TEST,
        f"tests/{name}.mlir": _LIT,
    }
    contents = {path: text.replace("@NAME@", name) for path, text in texts.items()}
    return common.files(name, {"targets": f"{name}:TARGET"}, plugin="conftest.py") | contents
