"""An ONNX model with a node of one's own domain, as a prim function: `python examples/custom_onnx_operator.py`."""

import numpy as np
import onnx
from onnx import TensorProto, helper

import mirlo
from mirlo import T

# What one writes: the computation, and to which nodes it belongs.
R, N = T.dims("R", "N")
epsilon = T.attrs("epsilon")


@mirlo.prim_func
def fancy_norm(x: T.Buffer[(R, N), T.f32], scale: T.Buffer[(N,), T.f32], y: T.Out[(R, N), T.f32]):
    peak = T.alloc((R,), T.f32)
    for i in range(R):
        peak[i] = 0.0
        for j in range(N):
            peak[i] = T.max(peak[i], T.abs(x[i, j]))
    for i, j in T.grid(R, N):
        y[i, j] = scale[j] * x[i, j] / (peak[i] + epsilon)


mirlo.onnx_operator("com.acme", "FancyNorm", prim_func=fancy_norm, attributes={"epsilon": 1e-5})


def model() -> onnx.ModelProto:
    """Build a graph with the operator between others."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], name="tanh"),
        helper.make_node("FancyNorm", ["t", "scale"], ["n"], name="norm", domain="com.acme", epsilon=0.5),
        helper.make_node("Relu", ["n"], ["y"], name="relu"),
    ]
    shapes = {"x": [4, 8], "scale": [8], "y": [4, 8]}
    x, scale, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    graph = helper.make_graph(nodes, "norms", [x, scale], [y])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.acme", 1)]
    return helper.make_model(graph, opset_imports=imports)


def main() -> None:
    executable = mirlo.compile(model())
    generator = np.random.default_rng(0)
    x, scale = generator.standard_normal((4, 8), dtype=np.float32), generator.standard_normal(8, dtype=np.float32)
    t = np.tanh(x)
    expected = np.maximum(scale * t / (np.abs(t).max(axis=1, keepdims=True) + 0.5), 0)
    np.testing.assert_allclose(executable(x, scale), expected, rtol=1e-5, atol=1e-6)
    print(f"the model computes what numpy does, in kernels {[kernel.symbol for kernel in executable.artifact.kernels]}")


if __name__ == "__main__":
    main()
