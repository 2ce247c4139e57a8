"""`mirlo new codegen`: a code generator for parts of models, with its loader."""

from __future__ import annotations

from mirlo.tools.new import common

_MODULE = '''"""The code generator `@NAME@`: products of matrices, on a unit that numpy plays."""

import json
from dataclasses import dataclass

import numpy as np

from mirlo.extend import Artifact, CodeGenerator, ExternalFunctions, Target, decline, is_op, option, wildcard

TILE = 8


def whole_tiles(match):
    """Check a match: return True, or why it is not wanted."""
    matmul = match.op("matmul")
    dims = [*matmul.lhs.shape, *matmul.rhs.shape]
    if matmul.transpose_lhs or matmul.transpose_rhs or len(dims) != 4:
        return decline("the unit multiplies matrices as they are", rank=len(dims))
    if any(dim % TILE for dim in dims):
        return decline("the unit multiplies whole tiles", tile=TILE, dims=dims)
    return True


@dataclass(frozen=True)
class @CLASS@(CodeGenerator):
    """The compiler's side: what is taken, and what it becomes."""

    name = "@NAME@"
    half: bool = option(False, "multiply in f16")

    def patterns(self):
        matmul = is_op("relax.matmul")(wildcard(), wildcard()).has_dtype("f32").named("matmul")
        return [("matmul_relu", is_op("relax.relu")(matmul), whole_tiles), ("matmul", matmul, whole_tiles)]

    def codegen(self, module):
        programs = {function.name: program_of(function) for function in module.functions}
        text = json.dumps(programs).encode()
        return Artifact("@NAME@", module.names, text, tuple(module.constants), {"half": self.half})


def program_of(function):
    """Return a region as data: its inputs, commands and outputs."""
    commands = []
    for step in function.steps:
        lhs, rhs = (value.constant or value.name for value in step.nodes[0].inputs)
        commands.append([lhs, rhs, len(step.nodes) == 2, step.nodes[-1].output.name])
    return [[v.name for v in function.inputs], commands, [v.name for v in function.outputs]]


def load(artifact, context):
    """Load the artifact at run time: return its functions, which write their outputs."""
    kind = np.float16 if artifact.metadata["half"] else np.float32

    def function(inputs, commands, outputs):
        def call(*tensors):
            values = {**context.params, **dict(zip(inputs, tensors, strict=False))}
            for lhs, rhs, relu, output in commands:
                product = values[lhs].astype(kind) @ values[rhs].astype(kind)
                values[output] = np.maximum(product, 0) if relu else product
            for name, tensor in zip(outputs, tensors[len(inputs) :], strict=True):
                tensor[...] = values[name]

        return call

    programs = json.loads(artifact.data)
    return ExternalFunctions({name: function(*programs[name]) for name in artifact.functions})


TARGET = Target("@NAME@", "products of matrices on a unit", codegen=@CLASS@)
'''

_CONFTEST = '''"""Tests run where the package is installed, and where it is not."""

from @NAME@ import TARGET, load

from mirlo.extend import register_external_loader
from mirlo.testing import use_target

use_target(TARGET)
register_external_loader("@NAME@", load)
'''

_TEST = '''"""The code generator `@NAME@`: what it takes, and what it computes."""

import re

import numpy as np
import pytest

import mirlo
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


def reference(x, w):
    return np.maximum(x @ w, 0)


@pytest.mark.parametrize(("rows", "regions"), [(8, 1), (3, 0)])
def test_values(rows, regions, tmp_path):
    executable = runs_as_numpy(MODEL.format(rows=rows), reference, target="@NAME@,llvm")
    assert len(executable.artifact.externals) == regions
    executable.save(tmp_path / "model.mirlo")
    arrays = executable.random_inputs().values()
    np.testing.assert_array_equal(mirlo.load(tmp_path / "model.mirlo")(*arrays), executable(*arrays))


def test_options():
    runs_as_numpy(MODEL.format(rows=8), reference, target="@NAME@{half},llvm", rtol=0.01, atol=0.01)


def test_dynamic_rows():
    text = re.sub(r"tensor<3x(\\d+)xf32>", r'tensor<?x\\1xf32, #relax.dims<["n", \\1]>>', MODEL.format(rows=3))
    arrays = (np.ones((n, k), np.float32) for n, k in ((3, 8), (8, 16)))
    runs_as_numpy(text, reference, *arrays, target="@NAME@,llvm")


def test_stages():
    stages_round_trip(MODEL.format(rows=8), target="@NAME@,llvm")


def test_why_not(tmp_path, capsys):
    (tmp_path / "model.mlir").write_text(MODEL.format(rows=3))
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
        f"{name}.py": _MODULE,
        "tests/conftest.py": _CONFTEST,
        f"tests/test_{name}.py": _TEST,
        f"tests/{name}.mlir": _LIT,
    }
    words = {"@NAME@": name, "@CLASS@": common.class_name(name)}
    for word, text in words.items():
        texts = {path: old.replace(word, text) for path, old in texts.items()}
    entries = {"targets": f"{name}:TARGET", "loaders": f"{name}:load"}
    return common.files(name, entries, plugin="conftest.py") | texts
