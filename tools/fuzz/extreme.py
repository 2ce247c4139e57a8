"""Mutations to graphs that are extreme: functions that multiply, deep nesting, thousands of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from mirlo.tools.fuzz.structure_parts import pick

if TYPE_CHECKING:
    import onnx


def recursion(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Make functions call themselves, each other, or a missing one."""
    count = int(pick((1, 2, 3, 40), rng))
    ring = int(rng.integers(3))
    for i in range(count):
        callee = {0: f"F{(i + 1) % count}", 1: f"F{i + 1}" if i + 1 < count else "Missing", 2: f"F{i}"}[ring]
        function = model.functions.add(name=f"F{i}", domain="local", input=["p"], output=["q"])
        function.node.add(op_type=callee, domain="local", input=["p"], output=["q"])
        if rng.random() < 0.8:
            function.opset_import.add(domain="local", version=1)
    model.graph.node.add(op_type="F0", domain="local", input=["x"], output=["recursive"])
    model.graph.output.add().name = "recursive"


def doubling(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Make each function call the next one twice: 2^depth nodes when they are expanded."""
    depth = int(pick((3, 10, 18, 30, 200), rng))
    for i in range(depth):
        function = model.functions.add(name=f"D{i}", domain="local", input=["p"], output=["q"])
        last = i + 1 == depth
        for source, target in (("p", "m"), ("m", "q")):
            node = function.node.add(op_type="Relu" if last else f"D{i + 1}", input=[source], output=[target])
            node.domain = "" if last else "local"
        function.opset_import.add(domain="", version=20)
        function.opset_import.add(domain="local", version=1)
    model.graph.node.add(op_type="D0", domain="local", input=["x"], output=["doubled"])
    model.graph.output.add().name = "doubled"


def deep(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Nest branches, loops or functions deeply."""
    depth = int(pick((2, 5, 12, 28), rng))  # 33 levels are as many as protobuf reads
    kind = pick(("If", "Loop"), rng)
    graph = _leaf(kind, depth)
    for level in reversed(range(depth)):
        node = graph.__class__().node.add(op_type=kind)
        _fill(node, kind, graph, level)
        outer = _leaf(kind, level)
        del outer.node[:]
        outer.node.append(node)
        if kind == "Loop":
            outer.node.add(op_type="Identity", input=[f"go{level}"], output=[f"on{level}"])
        graph = outer
    node = model.graph.node.add(op_type=kind)
    _fill(node, kind, graph, -1)
    model.graph.output.add().name = "deep-1"


def _leaf(kind: str, level: int) -> onnx.NodeProto:
    out = helper.make_tensor_value_info(f"deep{level}", TensorProto.FLOAT, None)
    if kind == "If":
        return helper.make_graph([helper.make_node("Neg", ["x"], [f"deep{level}"])], f"g{level}", [], [out])
    go, on = (helper.make_tensor_value_info(f"{name}{level}", TensorProto.BOOL, []) for name in ("go", "on"))
    i = helper.make_tensor_value_info(f"i{level}", TensorProto.INT64, [])
    a = helper.make_tensor_value_info(f"a{level}", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Neg", [f"a{level}"], [f"deep{level}"]),
        helper.make_node("Identity", [f"go{level}"], [f"on{level}"]),
    ]
    return helper.make_graph(nodes, f"g{level}", [i, go, a], [on, out])


def _fill(node: onnx.NodeProto, kind: str, graph: onnx.GraphProto, level: int) -> None:
    """Nest a graph of the next level in a node."""
    node.output.append(f"deep{level}")
    if kind == "If":
        node.input.append("c")
        for name in ("then_branch", "else_branch"):
            held = node.attribute.add(name=name, type=5)
            if name == "then_branch":
                held.g.CopyFrom(graph)
            else:
                held.g.CopyFrom(_leaf("If", level + 1))
        return
    node.input.extend(["trips", "", "x" if level < 0 else f"a{level}"])
    node.attribute.add(name="body", type=5).g.CopyFrom(graph)


def wide(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Add many nodes, inputs, initializers or outputs."""
    count, kind = int(pick((10, 300, 2000), rng)), int(rng.integers(5))
    graph = model.graph
    if kind == 0:
        for i in range(count):
            graph.node.add(op_type="Relu", input=[f"r{i - 1}" if i else "x"], output=[f"r{i}"])
        graph.output.add().name = f"r{count - 1}"
    elif kind == 1:
        for i in range(count):
            graph.input.add().CopyFrom(graph.input[0])
            graph.input[-1].name = f"in{i}"
        graph.node.add(op_type="Sum", input=[f"in{i}" for i in range(count)], output=["many"])
        graph.output.add().name = "many"
    elif kind == 2:
        node = graph.node.add(op_type="Concat", input=["x"] * count, output=["wide"])
        node.attribute.add(name="axis", type=2, i=int(rng.integers(-1, 2)))
        graph.output.add().name = "wide"
    elif kind == 3:
        node = graph.node.add(op_type="Split", input=["x"], output=[f"part{i}" for i in range(count)])
        node.attribute.add(name="num_outputs", type=2, i=count)
        graph.output.add().name = "part0"
    else:
        for i in range(count):
            graph.output.add().CopyFrom(graph.output[0])
            if rng.random() < 0.5:
                graph.output[-1].name = f"out{i}"
