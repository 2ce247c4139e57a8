"""`mirlo new operator`: an elementwise operator, and a composed one with a converter of ONNX."""

from __future__ import annotations

from mirlo.tools.new import common

_MODULE = '''"""The operators `@NAME@.@NAME@` and `gated`: change what they compute, and run the tests."""

import numpy as np

from mirlo.extend.frontend import Tensor
from mirlo.extend.ops import (
    DialectOp,
    Float,
    OnnxName,
    OpError,
    Precision,
    Trait,
    converter,
    operand,
    register_dialect,
    result,
)

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


def gated(x: Tensor, gate: Tensor, beta: float) -> Tensor:
    """Return x * gate / (1 + exp(-beta * gate)), of operators that are there."""
    return x * gate * (beta * gate).sigmoid()


@converter("Gated@CLASS@", domain="com.@NAME@")
def gated_of_onnx(node):
    return gated(node[0], node[1], node.attr.float("beta", 1.0))
'''

_TEST = '''"""`@NAME@.@NAME@` computes what its class says."""

import mirlo
import numpy as np
import pytest
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


X = np.linspace(-3, 3, 36, dtype=np.float32).reshape(4, 9)
ONE, GATED = X / (1 + np.exp(-0.5 * X)), X * X / (1 + np.exp(-0.5 * X))
CASES = [("@CLASS@", 1, ONE), ("Gated@CLASS@", 2, GATED)]
"""Names in ONNX, numbers of operands, results."""


@pytest.mark.parametrize(("onnx_name", "count", "expected"), CASES)
def test_import_of_onnx(onnx_name, count, expected):
    helper = pytest.importorskip("onnx").helper
    x, y = (helper.make_tensor_value_info(value, 1, [4, 9]) for value in "xy")
    graph = helper.make_graph([helper.make_node(onnx_name, ["x"] * count, ["y"], domain="com.@NAME@", beta=0.5)],
                              "graph", [x], [y])  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.@NAME@", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    np.testing.assert_allclose(mirlo.compile(model, cache=False)(X), expected, rtol=1e-5, atol=1e-7)


def test_import_of_pytorch():
    torch = pytest.importorskip("torch")
    torch.library.define("@NAME@::@NAME@", "(Tensor x, float beta=1.0) -> Tensor")
    torch.library.register_fake("@NAME@::@NAME@", lambda x, beta=1.0: torch.empty_like(x))

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.ops.@NAME@.@NAME@(x, 0.5)

    x = torch.from_numpy(X)
    found = mirlo.compile(Model().eval(), args=(x,), cache=False).torch(x)
    np.testing.assert_allclose(found, ONE, rtol=1e-5, atol=1e-7)


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
