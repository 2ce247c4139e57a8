"""Models in which the host decides, or whose sizes are known when they are called only; with inputs for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

Inputs = dict[str, np.ndarray]
FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def _model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(*one) for one in inputs]
    made = [helper.make_tensor_value_info(*one) for one in outputs]
    graph = helper.make_graph(list(nodes), "g", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _body(name: str, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.GraphProto:
    given = [helper.make_tensor_value_info(*one) for one in inputs]
    made = [helper.make_tensor_value_info(*one) for one in outputs]
    return helper.make_graph(list(nodes), name, given, made)


def _number(name: str, value: float) -> Any:
    return helper.make_node("Constant", [], [name], value_float=value)


def branches() -> tuple[onnx.ModelProto, list[Inputs]]:
    """`If`: one of two products."""

    def branch(name: str, factor: float) -> onnx.GraphProto:
        nodes = [_number(f"{name}_c", factor), helper.make_node("Mul", ["x", f"{name}_c"], [f"{name}_y"])]
        return _body(name, nodes, [], [(f"{name}_y", FLOAT, [4])])

    node = helper.make_node("If", ["which"], ["y"], then_branch=branch("a", 2.0), else_branch=branch("b", 3.0))
    x = np.arange(4, dtype=np.float32)
    model = _model([node], [("which", BOOL, []), ("x", FLOAT, [4])], [("y", FLOAT, [4])])
    return model, [{"which": np.array(which), "x": x} for which in (True, False)]


def rounds() -> tuple[onnx.ModelProto, list[Inputs]]:
    """`Loop`: until a sum is large, or for this number of iterations."""
    nodes = [
        _number("two", 2.0), helper.make_node("Mul", ["v", "two"], ["w"]),
        helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0), _number("most", 100.0),
        helper.make_node("Less", ["s", "most"], ["go"]),
    ]  # fmt: skip
    inputs = [("i", INT64, []), ("c", BOOL, []), ("v", FLOAT, [4])]
    body = _body("body", nodes, inputs, [("go", BOOL, []), ("w", FLOAT, [4])])
    node = helper.make_node("Loop", ["n", "start", "x"], ["y"], body=body)
    given = [("n", INT64, []), ("start", BOOL, []), ("x", FLOAT, [4])]
    x = np.ones(4, np.float32)
    cases = [{"n": np.array(n), "start": np.array(n != 2), "x": x} for n in (0, 1, 2, 3, 50)]
    return _model([node], given, [("y", FLOAT, [4])]), cases


def resized() -> tuple[onnx.ModelProto, list[Inputs]]:
    """`Loop` that carries a tensor that grows, with a branch of two sizes in each round."""
    two = helper.make_node("Constant", [], ["two"], value_int=2)
    then = _body("t", [helper.make_node("Concat", ["v", "x"], ["p"], axis=0)], [], [("p", FLOAT, None)])
    other = _body("e", [helper.make_node("Neg", ["v"], ["q"])], [], [("q", FLOAT, None)])
    nodes = [
        two, helper.make_node("Mod", ["i", "two"], ["m"]), helper.make_node("Cast", ["m"], ["odd"], to=BOOL),
        helper.make_node("If", ["odd"], ["w"], then_branch=then, else_branch=other),
        helper.make_node("Identity", ["c"], ["go"]),
    ]  # fmt: skip
    inputs = [("i", INT64, []), ("c", BOOL, []), ("v", FLOAT, None)]
    body = _body("body", nodes, inputs, [("go", BOOL, []), ("w", FLOAT, None)])
    loop = helper.make_node("Loop", ["n", "start", "x"], ["grown"], body=body)
    given = [("n", INT64, []), ("start", BOOL, []), ("x", FLOAT, [3])]
    x = np.arange(3, dtype=np.float32)
    cases = [{"n": np.array(n), "start": np.array(True), "x": x} for n in (0, 1, 2, 9)]
    return _model([loop, helper.make_node("Abs", ["grown"], ["y"])], given, [("y", FLOAT, ["k"])]), cases


def steps() -> tuple[onnx.ModelProto, list[Inputs]]:
    """`Scan` over an open number of steps."""
    nodes = [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["t"], ["o"])]
    body = _body("body", nodes, [("s", FLOAT, [3]), ("x", FLOAT, [3])], [("t", FLOAT, [3]), ("o", FLOAT, [3])])
    node = helper.make_node("Scan", ["s0", "xs"], ["s1", "ys"], body=body, num_scan_inputs=1)
    model = _model([node], [("s0", FLOAT, [3]), ("xs", FLOAT, ["n", 3])], [("s1", FLOAT, [3]), ("ys", FLOAT, ["n", 3])])
    rng = np.random.default_rng(0)
    return model, [{"s0": np.ones(3, np.float32), "xs": rng.standard_normal((n, 3), np.float32)} for n in (1, 4)]


def counted() -> tuple[onnx.ModelProto, list[Inputs]]:
    """`Range`: data determine the size of the output."""
    nodes = [helper.make_node("Range", ["a", "b", "d"], ["r"]), helper.make_node("Neg", ["r"], ["y"])]
    model = _model(nodes, [(name, FLOAT, []) for name in "abd"], [("y", FLOAT, ["n"])])
    return model, [
        {name: np.array(v, np.float32) for name, v in zip("abd", (0, b, 2), strict=True)} for b in (7, 0, 400)
    ]


def layers() -> tuple[onnx.ModelProto, list[Inputs]]:
    """Open dims: products in tiles, rows, elementwise work, a transposition."""
    rng = np.random.default_rng(1)
    weight = helper.make_node(
        "Constant", [], ["w"], value=onnx.numpy_helper.from_array(rng.standard_normal((16, 24)).astype(np.float32))
    )
    nodes = [
        weight, helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("Softmax", ["q"], ["r"], axis=-1), helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["r", "t"], ["u"]), helper.make_node("Add", ["u", "b"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["m"], axes=[1], keepdims=0),
    ]  # fmt: skip
    given = [("x", FLOAT, ["batch", "length", 16]), ("b", FLOAT, ["length"])]
    model = _model(nodes, given, [("y", FLOAT, ["batch", "length", "length"]), ("m", FLOAT, ["batch", "length"])])
    sizes = ((1, 5), (2, 33), (1, 70), (3, 1), (0, 4))
    return model, [
        {"x": rng.standard_normal((b, n, 16), np.float32), "b": rng.standard_normal(n).astype(np.float32)}
        for b, n in sizes
    ]


def scattered() -> tuple[onnx.ModelProto, list[Inputs]]:
    """`ScatterND`: a copy of an open number of rows, some of which are written over."""
    node = helper.make_node("ScatterND", ["x", "where", "rows"], ["y"])
    given = [("x", FLOAT, ["n", 300]), ("where", INT64, [2, 1]), ("rows", FLOAT, [2, 300])]
    rng = np.random.default_rng(2)
    where, rows = np.array([[1], [0]]), rng.standard_normal((2, 300), np.float32)
    model = _model([node], given, [("y", FLOAT, ["n", 300])])
    # More elements than Mesa's software device lets a loop of one thread have.
    sizes = (2, 250)
    return model, [{"x": rng.standard_normal((n, 300), np.float32), "where": where, "rows": rows} for n in sizes]


ALL = {f.__name__: f for f in (branches, rounds, resized, steps, counted, layers, scattered)}
