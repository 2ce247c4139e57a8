"""An operator of one's own, from an ONNX model to machine code: `python examples/own_operator.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import mirlo
from mirlo.extend.ops import (
    DialectOp,
    Float,
    OpError,
    TensorType,
    compute,
    converter,
    elementwise,
    operand,
    register_dialect,
    result,
)
from mirlo.extend.rules import legalize

DIALECT = register_dialect("example")


class Swiglu(DialectOp, name="swiglu", dialect=DIALECT):
    """gate * x * sigmoid(beta * x)"""

    x = operand()
    gate = operand()
    beta = Float(1.0)
    output = result()

    @staticmethod
    def infer(x: TensorType, gate: TensorType, *, beta: float) -> TensorType:
        """Infer the type of the output; an error names the user's node."""
        if x != gate:
            raise OpError(f"x and gate must have one type, got {x} and {gate}")
        return x


@converter("Swiglu", domain="com.example")
def from_onnx(node: Any) -> Any:
    """Convert the node of an ONNX model."""
    return Swiglu.make(node[0], node[1], beta=node.attr.float("beta", 1.0))


@legalize("example.swiglu")
def to_tir(op: Any, b: Any) -> Any:
    """Compute one element of the result; the compiler makes the loops and fuses them."""
    return elementwise(op, b, [op.x, op.gate], lambda x, gate: gate * x * compute.sigmoid(op.beta * x))


def model() -> onnx.ModelProto:
    """Build a graph with the operator between others."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], name="tanh"),
        helper.make_node("Swiglu", ["t", "g"], ["y"], name="gated", domain="com.example", beta=2.0),
    ]
    x, g, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 256]) for name in "xgy")
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [x, g], [y]), opset_imports=opsets)


def main() -> None:
    """Compile the model, compare it with numpy, show the one kernel that it became."""
    exe = mirlo.compile(model())
    generator = np.random.default_rng(0)
    x, g = (generator.standard_normal((4, 256), dtype=np.float32) for _ in range(2))
    t = np.tanh(x)
    np.testing.assert_allclose(exe(x, g), g * t / (1 + np.exp(-2 * t)), rtol=1e-5, atol=1e-6)
    print(exe.profile(x, g))


if __name__ == "__main__":
    main()
