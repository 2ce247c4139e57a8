"""Loops over rows that exporters unrolled compute at once what ONNX's reference evaluator computes row by row."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session

STEPS, DEPTH = 5, 4


def unrolled_model(axis: int, step: int, skipped: int) -> onnx.ModelProto:
    """Return a model that takes `step` rows of a dim at a time, but for the first ones, and joins products of them."""
    rng = np.random.default_rng(axis)
    constants = {
        "w": rng.uniform(-1, 1, (DEPTH, 3)).astype(np.float32),
        "b": rng.uniform(-1, 1, 3).astype(np.float32),
        "axis": np.array([axis], np.int64),
        **{f"at{i}": np.array([i], np.int64) for i in range(0, STEPS * step + skipped + 1)},
    }
    nodes = []
    for i in range(STEPS):
        begin = skipped + i * step
        last = f"v{i}"
        nodes.append(helper.make_node("Slice", ["x", f"at{begin}", f"at{begin + step}", "axis"], [last]))
        if step == 1:
            nodes.append(helper.make_node("Squeeze", [last, "axis"], [f"squeezed{i}"]))
            last = f"squeezed{i}"
        nodes.append(helper.make_node("MatMul", [last, "w"], [f"product{i}"]))
        nodes.append(helper.make_node("Add", ["b", f"product{i}"], [f"sum{i}"]))
        nodes.append(helper.make_node("Tanh", [f"sum{i}"], [f"tanh{i}"]))
        last = f"tanh{i}"
        if step == 1:
            nodes.append(helper.make_node("Unsqueeze", [last, "axis"], [f"row{i}"]))
            last = f"row{i}"
        nodes[-1].output[0] = f"row{i}"
    nodes.append(helper.make_node("Concat", [f"row{i}" for i in range(STEPS)], ["y"], axis=axis))
    shape: list[int | str] = ["n", "n", DEPTH]
    shape[axis] = STEPS * step + skipped
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "unrolled", inputs, outputs, tensors)
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))


@pytest.mark.parametrize(("axis", "step", "skipped"), [(0, 1, 0), (0, 2, 2), (1, 1, 2)])
def test_steps_are_computed_at_once(axis: int, step: int, skipped: int) -> None:
    model = unrolled_model(axis, step, skipped)
    executable = mirlo.compile(model)
    assert sum(kernel.kind == "contraction" for kernel in executable.artifact.kernels) == 1
    for n in (1, 3):
        shape = [n, n, DEPTH]
        shape[axis] = STEPS * step + skipped
        x = np.random.default_rng(n).uniform(-1, 1, shape).astype(np.float32)
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(executable.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)


def test_long_chains_of_concatenations() -> None:
    sizes = "operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>"
    lines = [
        f'%{i} = "relax.concat"(%{i - 1}, %0) {{axis = 0 : i64, {sizes}}} : '
        f"(tensor<{i}xf32>, tensor<1xf32>) -> tensor<{i + 1}xf32>"
        for i in range(1, 600)
    ]
    text = (
        "func.func @main(%0: tensor<1xf32>) -> tensor<600xf32> {\n"
        + "\n".join(lines)
        + "\nreturn %599 : tensor<600xf32>\n}"
    )
    with make_context():
        module = ir.Module.parse(text)
        Pipeline("simplify").run(module, Session())
        assert str(module).count("relax.concat") > 0
