"""Mutations to graphs whose parts refer to each other in malformed ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirlo.tools.fuzz.structure_parts import bodies_of, copy_graph, graphs_of, pick, pick_node, value_names

if TYPE_CHECKING:
    import onnx


def dangling_value(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Read a value that nothing computes."""
    node = pick_node(model, rng)
    if node.input:
        node.input[int(rng.integers(len(node.input)))] = pick(("nowhere", "", "then_branch_y", "b", "q", "next"), rng)
    else:
        node.input.append("nowhere")


def cycle(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Read a value that depends on this one, or the node's own result."""
    body = pick(bodies_of(model) or [model.graph], rng)
    if not body.node:
        return
    first, last = sorted(int(rng.integers(len(body.node))) for _ in range(2))
    node, later = body.node[first], body.node[last]
    if node.input and later.output:
        node.input[int(rng.integers(len(node.input)))] = later.output[0]


def shuffled(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Put nodes before those whose results they read."""
    body = pick(bodies_of(model) or [model.graph], rng)
    nodes = list(body.node)
    rng.shuffle(nodes)
    del body.node[:]
    body.node.extend(nodes)


def two_definitions(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Define a name a second time: as a result, an input, an initializer, or in a subgraph."""
    graph = pick(graphs_of(model), rng)
    kind = int(rng.integers(4))
    if kind == 0:
        node = pick_node(model, rng)
        if node.output:
            node.output[int(rng.integers(len(node.output)))] = pick(value_names(model), rng)
    elif kind == 1 and graph.input:
        graph.input.add().CopyFrom(pick(graph.input, rng))
    elif kind == 2 and model.graph.initializer:
        graph.initializer.add().CopyFrom(pick(model.graph.initializer, rng))
    elif graph.node:
        graph.node.add().CopyFrom(pick(graph.node, rng))


def shadowed(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Give something in a subgraph the name of a value outside."""
    for graph in graphs_of(model)[1:]:
        if rng.random() < 0.5 and graph.input:
            pick(graph.input, rng).name = pick(value_names(model), rng)
        elif graph.node and graph.node[0].output:
            graph.node[0].output[0] = pick(value_names(model), rng)


def outputs(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Return inputs, initializers, missing values, one value twice, or nothing as outputs."""
    graph = pick(graphs_of(model), rng)
    kind = int(rng.integers(4))
    if kind == 0:
        graph.output.add().name = pick(("x", "w", "c", "nowhere", "", "h0", "b"), rng)
    elif kind == 1 and graph.output:
        graph.output.add().CopyFrom(pick(graph.output, rng))
    elif kind == 2:
        del graph.output[:]
    elif graph.output:
        pick(graph.output, rng).name = pick(value_names(model), rng)


def arity(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Give a node more or fewer inputs or outputs."""
    node = pick_node(model, rng)
    field = node.input if rng.random() < 0.6 else node.output
    kind = int(rng.integers(4))
    if kind == 0:
        field.extend(pick(value_names(model), rng) for _ in range(int(pick((1, 2, 30, 3000), rng))))
    elif kind == 1:
        del field[:]
    elif kind == 2 and field:
        del field[int(rng.integers(len(field)))]
    else:
        field.insert(0, "")


def functions(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Change a function: its name, inputs, outputs, attributes, or define it twice."""
    if not model.functions:
        return
    function = pick(model.functions, rng)
    kind = int(rng.integers(7))
    if kind == 0:
        model.functions.add().CopyFrom(function)
    elif kind == 1:
        function.input.append(pick(("p", "", "extra"), rng))
    elif kind == 2:
        function.output.append(pick(("p", "q", "nowhere", ""), rng))
    elif kind == 3:
        function.name, function.domain = pick((("Add", ""), ("", "local"), ("Twice", ""), ("If", "")), rng)
    elif kind == 4:
        function.attribute.extend(["alpha", "alpha", ""][: 1 + int(rng.integers(3))])
    elif kind == 5 and function.node:
        attribute = pick(function.node, rng).attribute.add(name="axis", type=2)
        attribute.ref_attr_name = pick(("alpha", "nowhere", ""), rng)
    else:
        del function.node[:]


def attributes(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Give a node huge, doubled, untyped or contradictory attributes."""
    node = pick_node(model, rng)
    kind = int(rng.integers(6))
    name = pick(("axis", "axes", "body", "then_branch", "keepdims", "value", "num_scan_inputs", "zzz", ""), rng)
    attribute = node.attribute.add(name=name)
    if kind == 0:
        attribute.type = 7
        attribute.ints.extend([1] * int(pick((1, 1000, 100_000), rng)))
    elif kind == 1:
        attribute.type = int(rng.integers(15))
    elif kind == 2:
        attribute.i, attribute.f, attribute.s, attribute.type = 1, 2.0, b"x", int(rng.integers(5))
    elif kind == 3:
        attribute.type = 5
        copy_graph(pick(graphs_of(model), rng), attribute.g)
    elif kind == 4:
        for i in range(int(pick((2, 5000), rng))):
            node.attribute.add(name=f"a{i}", type=2, i=i)
    elif len(node.attribute) > 1:
        attribute.CopyFrom(node.attribute[0])


def subgraph(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Remove, empty or exchange the subgraphs of a node."""
    owners = [node for body in bodies_of(model) for node in body.node if any(a.HasField("g") for a in node.attribute)]
    if not owners:
        return
    node = pick(owners, rng)
    held = [attribute for attribute in node.attribute if attribute.HasField("g")]
    attribute, kind = pick(held, rng), int(rng.integers(6))
    if kind == 0:
        node.attribute.remove(attribute)
    elif kind == 1:
        attribute.g.Clear()
    elif kind == 2:
        copy_graph(pick(graphs_of(model), rng), attribute.g)
    elif kind == 3 and attribute.g.input:
        del attribute.g.input[int(rng.integers(len(attribute.g.input)))]
    elif kind == 4:
        attribute.g.input.add().name = pick(("extra", "x", ""), rng)
    else:
        node.op_type = pick(("If", "Loop", "Scan", "SequenceMap", "Relu", "Twice"), rng)


def capture(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Make a subgraph read a value that is defined later, in another subgraph, or nowhere."""
    graphs = [graph for graph in graphs_of(model)[1:] if graph.node]
    if graphs:
        node = pick(pick(graphs, rng).node, rng)
        name = pick(("y", "h5", "sums", "nowhere", "then_branch_y", "row", "a", "i", "p", "c", "w"), rng)
        if node.input:
            node.input[0] = name
        else:
            node.input.append(name)


def opsets(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Remove, double or misdate the operator sets and the version of the format."""
    kind = int(rng.integers(5))
    if kind == 0:
        del model.opset_import[:]
    elif kind == 1 and model.opset_import:
        model.opset_import.add(domain=pick(("", "local", "zzz"), rng), version=int(pick((0, 1, 7, 13, 99, 2**40), rng)))
    elif kind == 2 and model.opset_import:
        pick(model.opset_import, rng).version = int(pick((-1, 0, 1, 6, 12, 99, 2**62), rng))
    elif kind == 3:
        model.ir_version = int(pick((-1, 0, 1, 3, 2**62), rng))
    elif model.functions:
        del model.functions[0].opset_import[:]


def types(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Declare types of values that contradict what computes them, or no types."""
    values = [v for graph in graphs_of(model) for v in (*graph.input, *graph.output)]
    if rng.random() < 0.3:
        values.append(model.graph.value_info.add(name=pick(value_names(model), rng)))
    value, kind = pick(values or [model.graph.value_info.add()], rng), int(rng.integers(6))
    if kind == 0:
        value.type.tensor_type.elem_type = int(rng.integers(0, 26))
    elif kind == 1:
        value.ClearField("type")
    elif kind == 2:
        value.type.sequence_type.elem_type.tensor_type.elem_type = 1
    elif kind == 3:
        value.type.optional_type.elem_type.tensor_type.elem_type = 1
    elif kind == 4:
        inner = value.type
        for _ in range(int(pick((2, 20, 90), rng))):
            inner = inner.sequence_type.elem_type
        inner.tensor_type.elem_type = 1
    else:
        for _ in range(int(pick((1, 5, 70), rng))):
            value.type.tensor_type.shape.dim.add().dim_value = int(pick((-1, 0, 1, 4, 2**62), rng))


def operator(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Exchange the operator of a node."""
    node = pick_node(model, rng)
    node.op_type = pick(
        ("If", "Loop", "Scan", "Constant", "SequenceConstruct", "Optional", "Twice", "Concat", "zzz"), rng
    )
    if rng.random() < 0.4:
        node.domain = pick(("", "local", "com.microsoft", "ai.onnx.ml", "zzz"), rng)


def initializers(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Make initializers sparse, nameless, of strange shapes, or inputs at the same time."""
    graph, kind = pick(graphs_of(model), rng), int(rng.integers(5))
    if kind == 0:
        graph.initializer.add(data_type=1, dims=[1] * int(pick((0, 8, 65, 1000), rng)), float_data=[1.0])
    elif kind == 1:
        sparse = graph.sparse_initializer.add(dims=[4, 4])
        sparse.values.name = pick(("w", "sparse", ""), rng)
        sparse.indices.dims.append(int(pick((0, 1, 2**40), rng)))
    elif kind == 2 and model.graph.initializer:
        name = pick(model.graph.initializer, rng).name
        model.graph.input.add().CopyFrom(model.graph.input[0])
        model.graph.input[-1].name = name
    elif kind == 3:
        for i in range(int(pick((10, 2000), rng))):
            graph.initializer.add(name=f"w{i}", data_type=1, dims=[1], float_data=[float(i)])
    elif graph.initializer:
        pick(graph.initializer, rng).name = pick(value_names(model), rng)


def empty(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Empty the graph, or one of its lists."""
    kind = int(rng.integers(5))
    if kind == 0:
        model.ClearField("graph")
    elif kind == 1:
        del model.graph.node[:]
    elif kind == 2:
        del model.graph.input[:]
    elif kind == 3:
        del model.graph.initializer[:]
    else:
        model.graph.node.add()
