"""`mirlo new codegen`: a code generator for parts of models, with a driver in C."""

from __future__ import annotations

from mirlo.tools.new import common

_MODULE = '''"""The code generator `@NAME@`: products of matrices, as commands of a unit whose driver is `driver.c`."""

import struct
from mirlo.runtime.records import dataclass
from pathlib import Path

from mirlo.extend.codegen import CodeGenerator, is_op, wildcard
from mirlo.extend.rules import decline
from mirlo.extend.runtime import NativeCode
from mirlo.extend.target import Target, option

TILE = 8
SCRATCH = 1 << 16
"""Operands from here on are results of earlier commands, by their numbers."""
DRIVER = Path(__file__).with_name("driver.c")


def whole_tiles(match):
    """Check a match: return True, or why it is not wanted. The driver reads the rows, which may be dynamic."""
    matmul = match.op("matmul")
    dims = [*matmul.lhs.shape, *matmul.rhs.shape]
    if matmul.transpose_lhs or matmul.transpose_rhs or len(dims) != 4:
        return decline("the unit multiplies matrices as they are", rank=len(dims))
    if any(not isinstance(dim, int) or dim % TILE for dim in dims[1:]):
        return decline("the unit multiplies whole tiles", tile=TILE, dims=dims)
    return True


@dataclass(frozen=True)
class @CLASS@(CodeGenerator):
    """The compiler's side: what is taken, and what it becomes."""

    name = "@NAME@"
    device: bool = option(False, "leave driver.c out of libraries: the program links or registers the device's")

    def patterns(self):
        matmul = is_op("relax.matmul")(wildcard(), wildcard()).has_dtype("f32").named("matmul")
        return [("matmul_relu", is_op("relax.relu")(matmul), whole_tiles), ("matmul", matmul, whole_tiles)]

    def codegen(self, module):
        weights, programs, workspaces = tuple(module.constants), {}, {}
        for function in module.functions:
            programs[function.name], workspaces[function.name] = program_of(function, weights)
        files = {DRIVER.name: DRIVER.read_text(encoding="utf-8")}
        return NativeCode(
            driver="@NAME@_run", programs=programs, workspaces=workspaces, params=weights,
            sources={} if self.device else files, simulator=files, errors={1: "the commands are damaged"},
        )  # fmt: skip


def program_of(function, weights):
    """Return a region as commands, and the bytes of what it keeps between them."""
    places = {value: place for place, value in enumerate((*function.inputs, *function.outputs))}
    places |= {value: -1 - weights.index(value.constant) for value in function.constants}
    words, workspace = [], 0
    for number, step in enumerate(function.steps):
        (lhs, rhs), result = step.nodes[0].inputs, step.nodes[-1].output
        (rows, depth), columns = lhs.shape, rhs.shape[1]
        if result not in places:
            places[result] = SCRATCH + number
            workspace += 4 * rows * columns
        if not isinstance(rows, int):  # the rows of this input
            rows = -1 - next(place for place, value in enumerate(function.inputs) if value.shape[0] == rows)
        words += [places[lhs], places[rhs], places[result], rows, depth, columns, int(len(step.nodes) == 2)]
    return struct.pack(f"<{len(words)}i", *words), workspace


TARGET = Target("@NAME@", "products of matrices on a unit", codegen=@CLASS@)
'''

_DRIVER = """/* The driver of the unit, which computes on this processor: put the device's in its place. */
#include "mirlo.h"

#define SCRATCH (1 << 16)

typedef struct {
  int32_t lhs, rhs, result, rows, depth, columns, relu; /* `rows` below 0: those of a tensor */
} command;

static int64_t rows_of(const command *from, DLTensor **tensors) {
  return from->rows < 0 ? tensors[-1 - from->rows]->shape[0] : from->rows;
}

/* The data of an operand: a tensor, a constant, or what an earlier command left in the workspace. */
static float *find(const mirlo_region *region, DLTensor **tensors, int64_t count, int32_t place) {
  const command *commands = (const command *)region->program;
  const DLTensor *tensor = tensors[place >= SCRATCH ? count - 1 : place < 0 ? 0 : place];
  float *data = (float *)((char *)tensor->data + tensor->byte_offset);
  int32_t i;
  if (place < 0) return (float *)region->weights[-1 - place];
  for (i = 0; i < place - SCRATCH; ++i) {
    if (commands[i].result >= SCRATCH) data += rows_of(&commands[i], tensors) * commands[i].columns;
  }
  return data;
}

int @NAME@_run(const mirlo_region *region, DLTensor **tensors, int64_t count) {
  const command *now = (const command *)region->program, *end = now + region->program_bytes / sizeof *now;
  int64_t i, j, k;
  if (region->program_bytes % sizeof *now) return 1;
  for (; now < end; ++now) {
    const float *lhs = find(region, tensors, count, now->lhs), *rhs = find(region, tensors, count, now->rhs);
    float *result = find(region, tensors, count, now->result);
    for (i = 0; i < rows_of(now, tensors); ++i) {
      for (j = 0; j < now->columns; ++j) {
        float sum = 0;
        for (k = 0; k < now->depth; ++k) sum += lhs[i * now->depth + k] * rhs[k * now->columns + j];
        result[i * now->columns + j] = now->relu && sum < 0 ? 0 : sum;
      }
    }
  }
  return 0;
}
"""

_README = """# @NAME@

A code generator of Mirlo for a unit that multiplies matrices: `@NAME@/__init__.py` compiles regions to commands, which
`@NAME@/driver.c` runs.

```sh
pip install -e '.[test]'
pytest && lit tests
```

A model in a program without Python:

```sh
mirlo compile model.onnx --targets @NAME@,llvm --emit object -o model
cc -Imodel main.c model/mirlo.c model/*.o -o main -lm -ldl -lpthread
```

`driver.c` is in the library. With `--targets '@NAME@{device},llvm'` it is not: link the driver of the device, which
defines `@NAME@_run`, or name it in `options.functions` when the program creates the model:

```sh
mirlo compile model.onnx --targets '@NAME@{device},llvm' --emit object -o model
cc -Imodel main.c @NAME@/driver.c model/mirlo.c model/*.o -o main -lm -ldl -lpthread
```
"""

_CONFTEST = '''"""Tests run where the package is installed, and where it is not."""

from @NAME@ import TARGET

from mirlo.testing import use_target

use_target(TARGET)
'''

_TEST = '''"""The code generator `@NAME@`: what it takes, and what it computes, with Python and without."""

import re

import numpy as np
import pytest
from @NAME@ import DRIVER

import mirlo
from mirlo.testing import runs_as_library, runs_as_numpy, stages_round_trip
from mirlo.tools.cli import main

MODEL = """
func.func @main(%x: tensor<3x8xf32> {{relax.name = "x"}}, %w: tensor<8x{columns}xf32> {{relax.name = "w"}})
    -> (tensor<3x8xf32> {{relax.name = "y"}}) {{
  %0 = "relax.matmul"(%x, %w) : (tensor<3x8xf32>, tensor<8x{columns}xf32>) -> tensor<3x{columns}xf32>
  %1 = "relax.relu"(%0) : (tensor<3x{columns}xf32>) -> tensor<3x{columns}xf32>
  %2 = "relax.constant"() {{value = dense<0.5> : tensor<{columns}x8xf32>}} : () -> tensor<{columns}x8xf32>
  %3 = "relax.matmul"(%1, %2) : (tensor<3x{columns}xf32>, tensor<{columns}x8xf32>) -> tensor<3x8xf32>
  return %3 : tensor<3x8xf32>
}}
"""
DYNAMIC = re.sub(r"tensor<3x(\\d+)xf32>", r'tensor<?x\\1xf32, #relax.dims<["n", \\1]>>', MODEL.format(columns=16))
X, W = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((5, 8), (8, 16)))


def reference(x, w):
    return np.maximum(x @ w, 0) @ np.full((w.shape[1], 8), 0.5, np.float32)


@pytest.mark.parametrize(("columns", "regions"), [(16, 1), (12, 0)])
def test_values(columns, regions, tmp_path):
    executable = runs_as_numpy(MODEL.format(columns=columns), reference, target="@NAME@,llvm")
    assert len(executable.artifact.externals) == regions
    executable.save(tmp_path / "model.mirlo")
    arrays = executable.random_inputs().values()
    np.testing.assert_array_equal(mirlo.load(tmp_path / "model.mirlo")(*arrays), executable(*arrays))


def test_dynamic_rows():
    executable = runs_as_numpy(DYNAMIC, reference, X, W, target="@NAME@,llvm")
    assert len(executable.artifact.externals) == 1


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("target", "sources"), [("@NAME@,llvm", []), ("@NAME@{device},llvm", [DRIVER])])
def test_without_python(target, sources, shared):
    runs_as_library(DYNAMIC, reference, X, W, target=target, sources=sources, shared=shared)


def test_without_a_driver():
    with pytest.raises(mirlo.MirloError, match="the driver '@NAME@_run' for the region '@NAME@.@NAME@_0': link it"):
        runs_as_library(DYNAMIC, reference, X, W, target="@NAME@{device},llvm")


def test_stages():
    stages_round_trip(DYNAMIC, target="@NAME@,llvm")


def test_why_not(tmp_path, capsys):
    (tmp_path / "model.mlir").write_text(MODEL.format(columns=12))
    assert main(["partition", str(tmp_path / "model.mlir"), "--targets", "@NAME@,llvm"]) == 0
    assert "the unit multiplies whole tiles" in capsys.readouterr().out


def test_conformance():
    assert main(["check-target", "@NAME@,llvm", "--operator", "relax.matmul", "--operator", "relax.relu"]) == 0
'''

_LIT = """// RUN: mirlo-opt %s --load-pass-plugin %plugin --partition=targets=@NAME@ --outline-external | FileCheck %s

// CHECK: relax.call_external
// CHECK: module @@NAME@
// CHECK: relax.matmul
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
    words = {"@NAME@": name, "@CLASS@": common.class_name(name)}
    for word, text in words.items():
        texts = {path: old.replace(word, text) for path, old in texts.items()}
    return common.files(name, {"targets": f"{name}:TARGET"}, plugin="conftest.py", data="*.c") | texts
