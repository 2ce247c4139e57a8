"""`mirlo new operator`: an elementwise operator, from which everything follows."""

from __future__ import annotations

from mirlo.tools.new import common

_MODULE = '''"""The operator `@NAME@.@NAME@`: change its meaning, and run the tests."""

import numpy as np

from mirlo.extend import DialectOp, Float, OnnxName, OpError, Precision, Trait, operand, register_dialect, result

DIALECT = register_dialect("@NAME@")


class @CLASS@(DialectOp, name="@NAME@", dialect=DIALECT):
    """x / (1 + exp(-beta * x))"""

    TRAITS = (Trait.ELEMENTWISE, Trait.ACTIVATION)
    PRECISION = Precision.REGISTERS
    ONNX = OnnxName("@CLASS@", domain="com.@NAME@")
    ATEN = ("@NAME@::@NAME@",)
    STABLEHLO = ("@NAME@.@NAME@",)
    x, output = operand(), result()
    beta = Float(1.0)

    @staticmethod
    def infer(x, *, beta):
        if not x.dtype.is_float:
            raise OpError(f"operand must be floating point, got {x}")
        return x

    @staticmethod
    def meaning(x, *, beta):
        return x / (1 + np.exp(-beta * x))
'''

_TEST = '''"""`@NAME@.@NAME@` computes what its class says."""

import mirlo
import numpy as np
from @NAME@ import @CLASS@

from mirlo.testing import runs_as_numpy, stages_round_trip
from mirlo.tools.cli import main

MODEL = """
func.func @main(%x: tensor<4x9xf32> {relax.name = "x"}) -> (tensor<4x9xf32> {relax.name = "y"}) {
  %0 = "@NAME@.@NAME@"(%x) {beta = 5.000000e-01 : f64} : (tensor<4x9xf32>) -> tensor<4x9xf32>
  return %0 : tensor<4x9xf32>
}
"""


def test_values():
    runs_as_numpy(MODEL, lambda x: x / (1 + np.exp(-0.5 * x)))


def test_import_of_stablehlo(tmp_path):
    call = "stablehlo.custom_call @@NAME@.@NAME@(%x) {backend_config = {beta = 0.5 : f64}, api_version = 4 : i32}"
    kind = "tensor<4x9xf32>"
    text = f"func.func @main(%x: {kind}) -> {kind} {{ %0 = {call} : ({kind}) -> {kind} return %0 : {kind} }}"
    (tmp_path / "model.mlir").write_text(text)
    x = np.linspace(-3, 3, 36, dtype=np.float32).reshape(4, 9)
    found = mirlo.compile(tmp_path / "model.mlir", cache=False)(x)
    np.testing.assert_allclose(found, x / (1 + np.exp(-0.5 * x)), rtol=1e-5)


def test_stages():
    stages_round_trip(MODEL)


def test_conformance():
    assert main(["check-target", "llvm", "--operator", @CLASS@.OPERATION_NAME]) == 0
'''

_LIT = """// RUN: mirlo-opt %s --load-pass-plugin %plugin --legalize | FileCheck %s

// CHECK:     func.func @main
// CHECK:     "relax.call_tir"
// CHECK-NOT: "@NAME@.@NAME@"
func.func @main(%x: tensor<4x9xf32>) -> tensor<4x9xf32> {
  %0 = "@NAME@.@NAME@"(%x) : (tensor<4x9xf32>) -> tensor<4x9xf32>
  return %0 : tensor<4x9xf32>
}
"""


def files(name: str) -> dict[str, str]:
    """Return the files of the package."""
    texts = {f"{name}.py": _MODULE, f"tests/test_{name}.py": _TEST, f"tests/{name}.mlir": _LIT}
    contents = {
        path: text.replace("@NAME@", name).replace("@CLASS@", common.class_name(name)) for path, text in texts.items()
    }
    return common.files(name, {"dialects": f"{name}:DIALECT"}) | contents
