"""`mirlo new target`: a target with a legalization to calls of a driver in C, and the lowering of an intrinsic."""

from __future__ import annotations

from mirlo.tools.new import common

_MODULE = '''"""The target `@NAME@`: the CPU, with a unit for products. Change its rules and driver; run the tests."""

from dataclasses import replace
from pathlib import Path

from mirlo.extend.codegen import define_c_functions
from mirlo.extend.rules import decline, intrinsic, legalize
from mirlo.extend.runtime import load_llvm
from mirlo.extend.target import Pipeline, Target, find_target

TILE = 8
DRIVER = Path(__file__).with_name("driver.c")


@legalize("relax.matmul", target="@NAME@")
def matmul(op, b):
    """Products of any number of rows with matrices in whole tiles."""
    dims = [*op.lhs.shape, *op.rhs.shape]
    if len(dims) != 4 or op.lhs.dtype != "f32" or op.transpose_lhs or op.transpose_rhs:
        return decline("the unit multiplies matrices of f32", lhs=op.lhs.type, rhs=op.rhs.type)
    if any(not isinstance(dim, int) or dim % TILE for dim in dims[1:]):
        return decline("the unit multiplies whole tiles", tile=TILE, dims=dims)

    def body(loops, x, w, y):
        loops.call_extern("@NAME@_product", x, w, y, *x.shape, w.shape[1])

    return b.call_loops(body, op.lhs, op.rhs)


@intrinsic("rsqrt", target="@NAME@")
def rsqrt(op, b):
    """By a square root and a division."""
    return 1.0 / b.sqrt(op.nums[0]) if op.dtype == "f32" else decline("the unit computes in f32", dtype=op.dtype)


class UnitTarget(Target):
    """The CPU's pipeline with the rules above."""

    def pipeline(self, options):
        return str(Pipeline.named("llvm", options).for_target("@NAME@"))

    def emit(self, module, options):
        """Machine code of the CPU, which calls the driver: Python loads both, programs in C link both."""
        artifact = find_target("llvm").emit(module, options)
        return artifact if options.form else replace(artifact, target="@NAME@", loader="@NAME@")


def load(artifact):
    """Compile the driver for this machine, and load a model that calls it."""
    define_c_functions(DRIVER.read_text(encoding="utf-8"), ["@NAME@_product"])
    return load_llvm(artifact)


TARGET = UnitTarget("@NAME@", "the CPU with a unit for products", parent="llvm", makes_libraries=True)
'''

_DRIVER = """/* The driver of the unit, which computes on this processor: put the device's in its place. */
#include <stdint.h>

void @NAME@_product(const float *x, const float *w, float *y, int64_t rows, int64_t depth, int64_t columns) {
  int64_t i, j, k;
  for (i = 0; i < rows; ++i) {
    for (j = 0; j < columns; ++j) {
      float sum = 0;
      for (k = 0; k < depth; ++k) sum += x[i * depth + k] * w[k * columns + j];
      y[i * columns + j] = sum;
    }
  }
}
"""

_README = """# @NAME@

A target of Mirlo: the CPU with a unit for products. Code calls `@NAME@_product`, which `@NAME@/driver.c` defines.

```sh
pip install -e '.[test]'
pytest && lit tests
```

A model in a program without Python, which links the driver:

```sh
mirlo compile model.onnx --target @NAME@ --emit object -o model
cc -Imodel main.c @NAME@/driver.c model/mirlo.c model/*.o -o main -lm -ldl -lpthread
```
"""

_CONFTEST = '''"""Tests run where the package is installed, and where it is not."""

from @NAME@ import TARGET, load

from mirlo.extend.runtime import register_loader
from mirlo.testing import use_target

use_target(TARGET)
register_loader("@NAME@", load)
'''

_TEST = '''"""The target `@NAME@`: what runs where, and what it computes, with Python and without."""

import re

import numpy as np
import pytest
from @NAME@ import DRIVER

import mirlo
from mirlo.testing import after_passes, runs_as_library, runs_as_numpy, stages_round_trip
from mirlo.tools.cli import main

MODEL = """
func.func @main(%x: tensor<3x8xf32> {{relax.name = "x"}}, %w: tensor<8x{columns}xf32> {{relax.name = "w"}})
    -> (tensor<3x{columns}xf32> {{relax.name = "y"}}) {{
  %0 = "relax.matmul"(%x, %w) : (tensor<3x8xf32>, tensor<8x{columns}xf32>) -> tensor<3x{columns}xf32>
  %1 = "relax.relu"(%0) : (tensor<3x{columns}xf32>) -> tensor<3x{columns}xf32>
  return %1 : tensor<3x{columns}xf32>
}}
"""
DYNAMIC = re.sub(r"tensor<3x(\\d+)xf32>", r'tensor<?x\\1xf32, #relax.dims<["n", \\1]>>', MODEL.format(columns=16))
X, W = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((5, 8), (8, 16)))


def reference(x, w):
    return np.maximum(x @ w, 0)


@pytest.mark.parametrize("columns", [16, 12])
def test_values(columns, tmp_path):
    executable = runs_as_numpy(MODEL.format(columns=columns), reference, target="@NAME@")
    executable.save(tmp_path / "model.mirlo")
    arrays = executable.random_inputs().values()
    np.testing.assert_array_equal(mirlo.load(tmp_path / "model.mirlo")(*arrays), executable(*arrays))


@pytest.mark.parametrize(("columns", "calls"), [(16, True), (12, False)])
def test_calls_of_the_driver(columns, calls):
    assert ("@NAME@_product" in after_passes(MODEL.format(columns=columns), "legalize{target=@NAME@}")) == calls


def test_dynamic_rows():
    runs_as_numpy(DYNAMIC, reference, X, W, target="@NAME@")


@pytest.mark.parametrize("shared", [False, True])
def test_without_python(shared):
    runs_as_library(DYNAMIC, reference, X, W, target="@NAME@", sources=[DRIVER], shared=shared)


def test_without_a_driver():
    with pytest.raises(mirlo.MirloError, match="@NAME@_product"):
        runs_as_library(DYNAMIC, reference, X, W, target="@NAME@", shared=True)


def test_stages():
    stages_round_trip(DYNAMIC, target="@NAME@")


def test_who_declines(tmp_path, capsys):
    (tmp_path / "model.mlir").write_text(MODEL.format(columns=12))
    assert main(["explain", str(tmp_path / "model.mlir"), "--target", "@NAME@"]) == 0
    assert "the unit multiplies whole tiles" in capsys.readouterr().out


def test_conformance():
    assert main(["check-target", "@NAME@", "--operator", "relax.matmul", "--operator", "tir.rsqrt"]) == 0
'''

_LIT = """// RUN: mirlo-opt %s --load-pass-plugin %plugin --legalize=target=@NAME@ | FileCheck %s

// CHECK: @NAME@_product
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = "relax.matmul"(%x, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
"""


def files(name: str) -> dict[str, str]:
    """Return the files of the package."""
    texts = {
        "README.md": _README,
        f"{name}/__init__.py": _MODULE,
        f"{name}/driver.c": _DRIVER,
        "tests/conftest.py": _CONFTEST,
        f"tests/test_{name}.py": _TEST,
        f"tests/{name}.mlir": _LIT,
    }
    contents = {path: text.replace("@NAME@", name) for path, text in texts.items()}
    entries = {"targets": f"{name}:TARGET", "loaders": f"{name}:load"}
    return common.files(name, entries, plugin="conftest.py", data="*.c") | contents
