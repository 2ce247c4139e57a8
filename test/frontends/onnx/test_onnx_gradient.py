"""The operator Gradient, against differences."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import mirlo
from mirlo.frontends.onnx import OnnxImportError

IMPORTS = '<ir_version: 8, opset_import: ["": 18, "ai.onnx.preview.training": 1]>'


def differentiated(body: str, *arrays: np.ndarray) -> None:
    """Compare the gradient of the sum of y, computed by the nodes of `body` from x0, x1, ..., with its slope in f64."""
    names = [f"x{i}" for i in range(len(arrays))]
    listed = ", ".join(f"double{list(a.shape) or ''} {n}" for a, n in zip(arrays, names, strict=True))
    wanted = ", ".join(f"double{list(a.shape) or ''} d{n}" for a, n in zip(arrays, names, strict=True))
    quoted = ", ".join(f'"{n}"' for n in names)
    attributes = f'xs = [{quoted}], y = "y"'
    call = f"{', '.join('d' + n for n in names)} = ai.onnx.preview.training.Gradient<{attributes}>({', '.join(names)})"
    model = parser.parse_model(f"{IMPORTS}\ng ({listed}) => (double y, {wanted}) {{\n{body}\n{call}\n}}")
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    f = mirlo.compile(model)
    _, *found = f(*arrays)
    step = 1e-6
    for index, (array, made) in enumerate(zip(arrays, found, strict=True)):
        for at in np.ndindex(array.shape):
            sides = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[index][at] += sign * step
                sides.append(f(*moved)[0].sum())
            np.testing.assert_allclose(made[at], (sides[0] - sides[1]) / (2 * step), rtol=1e-5, atol=1e-7)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.3, 1.7, shape)


UNARY = (
    "Exp",
    "Log",
    "Sqrt",
    "Tanh",
    "Sigmoid",
    "Sin",
    "Cos",
    "Abs",
    "Reciprocal",
    "Neg",
    "Relu",
    "Softplus",
    "Erf",
    "Softmax",
    "LogSoftmax",
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("operator", UNARY)
def test_unary(operator: str) -> None:
    differentiated(f"a = {operator}(x0) y = Mul(a, x0)", numbers(2, 3))


@pytest.mark.sample(2)
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"])
def test_binary_with_broadcasting(operator: str) -> None:
    differentiated(f"y = {operator}(x0, x1)", numbers(2, 3), numbers(3, seed=1))


def test_products_and_shapes() -> None:
    differentiated("y = MatMul(x0, x1)", numbers(2, 3, 4), numbers(4, 2, seed=1))
    differentiated("y = Gemm<transA = 1, transB = 1>(x0, x1, x2)", numbers(4, 2), numbers(3, 4, seed=1), numbers(3))
    differentiated(
        "a = Transpose<perm = [1, 0]>(x0) b = Concat<axis = 1>(a, x1) y = Mul(b, b)", numbers(2, 3), numbers(3, 1)
    )
    differentiated("axes = Constant<value_ints = [1]>() a = ReduceMean(x0, axes) y = Mul(a, x0)", numbers(2, 3))
    differentiated(
        "c = Constant<value = double {1.0}>() t = Greater(x0, c) y = Where(t, x0, x1)", numbers(2, 3), numbers(3)
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "attributes", ["", "strides = [2, 2], pads = [1, 0, 1, 1]", "dilations = [2, 1], strides = [2, 1]"]
)
def test_convolution(attributes: str) -> None:
    y = f"c = Conv{f'<{attributes}>' if attributes else ''}(x0, x1, x2) y = Mul(c, c)"
    differentiated(y, numbers(2, 2, 6, 5), numbers(3, 2, 2, 3, seed=1), numbers(3, seed=2))


def test_second_order_and_other_values() -> None:
    model = parser.parse_model(f"""{IMPORTS}
    g (float x, float at) => (float first, float second) {{
      s = Mul(x, x)
      y = Mul(s, x)
      first = ai.onnx.preview.training.Gradient<xs = ["x"], y = "y">(x)
      second = ai.onnx.preview.training.Gradient<xs = ["x"], y = "first">(at)
    }}""")
    first, second = mirlo.compile(model)(np.float32(2), np.float32(5))
    assert first == 12 and second == 30


def test_through_an_intermediate_value() -> None:
    model = parser.parse_model(f"""{IMPORTS}
    g (float x, float z) => (float dh, float dz) {{
      h = Mul(x, x)
      y = Mul(h, z)
      dh, dz = ai.onnx.preview.training.Gradient<xs = ["h", "z"], y = "y">(h, z)
    }}""")
    assert [float(v) for v in mirlo.compile(model)(np.float32(3), np.float32(4))] == [4, 9]


def test_what_has_no_gradient_is_told() -> None:
    model = parser.parse_model(f"""{IMPORTS}
    g (float[3] x) => (float[3] d) {{
      y = CumSum(x, axis)
      axis = Constant<value_int = 0>()
      d = ai.onnx.preview.training.Gradient<xs = ["x"], y = "y">(x)
    }}""")
    with pytest.raises(OnnxImportError, match="cumsum has no gradient here; operators that have: abs, add"):
        mirlo.compile(model)
    assert isinstance(model, onnx.ModelProto)
