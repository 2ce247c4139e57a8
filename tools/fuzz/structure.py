"""Hostile structure: graphs that are malformed, or extreme, in how their parts refer to each other.

A model is built of blocks of bytes, since some of what is tried here no checker of ONNX accepts: values that nothing
computes, cycles, names that are defined twice, functions that call themselves, subgraphs that capture what does not
exist, deep nesting, thousands of inputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    import onnx

ACCEPTED, REFUSED, FAILED = "accepted", "refused", "failed"
STATES = {
    ACCEPTED: "compiled: what was changed is not wrong",
    REFUSED: "an error that tells what is wrong",
    FAILED: "an error that is not the user's: a bug",
}
ODD_NAMES = ("", "x", "y", "h0", "h1", "w", "c", "nowhere", "main", "%0", "x:0", " ", "h0.1", "y\x00", "ü")
MAX_BYTES = 4_000_000
"""Bytes of a model, beyond which no further mutation is applied."""


@dataclass(frozen=True)
class StructureVerdict:
    """What became of a model."""

    state: str
    text: str = ""
    mutation: str = ""


def hostile_model(seed: int) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Return the model of a seed, and the mutations that made it: one, two or three."""
    rng = np.random.default_rng([seed, 6])
    model = _model(rng)
    names = []
    for index in range(1 + int(rng.integers(3))):
        # The first one by the seed, so that each is tried equally often.
        mutation = MUTATIONS[seed % len(MUTATIONS) if index == 0 else int(rng.integers(len(MUTATIONS)))]
        with contextlib.suppress(DecodeError):  # nested more deeply than protobuf reads
            mutation(model, rng)
        names.append(mutation.__name__.strip("_"))
        if model.ByteSize() > MAX_BYTES:
            break
    return model, tuple(names)


def judge(seed: int) -> StructureVerdict:
    """Import and compile the model of a seed; run it where its inputs are known."""
    from mirlo.driver.compile import compile as compile_model
    from mirlo.runtime.errors import MirloError

    model, names = hostile_model(seed)
    told = ", ".join(names)
    try:
        executable = compile_model(model.SerializeToString(), jobs=1, cache=False)
        executable.run(executable.random_inputs(0))
    except MirloError as error:
        state = FAILED if getattr(error, "internal", False) else REFUSED
        return StructureVerdict(state, f"{told}: {error}", names[0])
    except Exception as error:
        return StructureVerdict(FAILED, f"{told}: {type(error).__name__}: {error}", names[0])
    return StructureVerdict(ACCEPTED, "", names[0])


def write(seed: int, folder: Path) -> None:
    """Write the model of a seed."""
    (folder / "model.onnx").write_bytes(hostile_model(seed)[0].SerializeToString())


# The model that is changed


def _model(rng: np.random.Generator) -> onnx.ModelProto:
    """Return a model with a subgraph of each kind, a function, a dynamic dim, weights."""
    from onnx import TensorProto, helper, numpy_helper

    dims: tuple[int | str, ...] = (2, "n")
    dim = _pick(dims, rng)
    f32 = TensorProto.FLOAT

    def value(name: str, kind: int = f32, shape: Sequence[int | str] | None = (dim, 4)) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    branches = {
        name: helper.make_graph([helper.make_node(op, ["h0"], [f"{name}_y"])], name, [], [value(f"{name}_y")])
        for name, op in (("then_branch", "Neg"), ("else_branch", "Identity"))
    }
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "h0"], ["b"]), helper.make_node("Identity", ["go"], ["on"]),
         helper.make_node("ReduceSum", ["b"], ["s"], keepdims=0)],
        "body", [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("a")],
        [value("on", TensorProto.BOOL, ()), value("b"), value("s", f32, ())],
    )  # fmt: skip
    step = helper.make_graph(
        [helper.make_node("Add", ["state", "row"], ["next"]), helper.make_node("Identity", ["next"], ["each"])],
        "step", [value("state", f32, (4,)), value("row", f32, (4,))],
        [value("next", f32, (4,)), value("each", f32, (4,))],
    )  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h0"], name="product"),
        helper.make_node("Twice", ["h0"], ["h1"], name="call", domain="local"),
        helper.make_node("If", ["c"], ["h2"], name="choice", **branches),
        helper.make_node("Loop", ["trips", "", "h1"], ["h3", "sums"], name="loop", body=body),
        helper.make_node("Scan", ["zero", "h2"], ["h4", "rows"], name="scan", num_scan_inputs=1, body=step),
        helper.make_node("Sum", ["h1", "h2", "h3"], ["h5"], name="sum"),
        helper.make_node("Add", ["h5", "h4"], ["y"], name="last"),
    ]
    graph = helper.make_graph(
        nodes, "g", [value("x"), value("c", TensorProto.BOOL, ())], [value("y"), value("sums", f32, None)],
        [numpy_helper.from_array(np.ones((4, 4), np.float32), "w"),
         numpy_helper.from_array(np.array(3), "trips"), numpy_helper.from_array(np.zeros(4, np.float32), "zero")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    inner = [helper.make_node("Add", ["p", "p"], ["q"], name="both")]
    function = helper.make_function("local", "Twice", ["p"], ["q"], inner, opsets[:1])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[function])


T = TypeVar("T")


def _pick(items: Sequence[T], rng: np.random.Generator) -> T:
    return items[int(rng.integers(len(items)))]


def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """Return the graph and its subgraphs, the outermost first."""
    found = [model.graph]
    for graph in found:
        found += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return found


def _bodies(model: onnx.ModelProto) -> list[onnx.GraphProto | onnx.FunctionProto]:
    """Return whatever has nodes: graphs and functions that are not empty."""
    return [body for body in (*_graphs(model), *model.functions) if body.node]


def _node(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.NodeProto:
    bodies = _bodies(model)
    return _pick(_pick(bodies, rng).node, rng) if bodies else model.graph.node.add(op_type="Relu")


def _names(model: onnx.ModelProto) -> list[str]:
    named = {name for body in _bodies(model) for node in body.node for name in (*node.input, *node.output)}
    return [*sorted(named), *ODD_NAMES]


# Mutations


def _dangling_value(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Read what nothing computes."""
    node = _node(model, rng)
    if node.input:
        node.input[int(rng.integers(len(node.input)))] = _pick(("nowhere", "", "then_branch_y", "b", "q", "next"), rng)
    else:
        node.input.append("nowhere")


def _cycle(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Read a value that depends on this one, or the node's own result."""
    body = _pick(_bodies(model) or [model.graph], rng)
    if not body.node:
        return
    first, last = sorted(int(rng.integers(len(body.node))) for _ in range(2))
    node, later = body.node[first], body.node[last]
    if node.input and later.output:
        node.input[int(rng.integers(len(node.input)))] = later.output[0]


def _shuffled(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Put nodes before those whose results they read."""
    body = _pick(_bodies(model) or [model.graph], rng)
    nodes = list(body.node)
    rng.shuffle(nodes)
    del body.node[:]
    body.node.extend(nodes)


def _two_definitions(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Define a name a second time: as a result, an input, an initializer, or in a subgraph."""
    graph = _pick(_graphs(model), rng)
    kind = int(rng.integers(4))
    if kind == 0:
        node = _node(model, rng)
        if node.output:
            node.output[int(rng.integers(len(node.output)))] = _pick(_names(model), rng)
    elif kind == 1 and graph.input:
        graph.input.add().CopyFrom(_pick(graph.input, rng))
    elif kind == 2 and model.graph.initializer:
        graph.initializer.add().CopyFrom(_pick(model.graph.initializer, rng))
    elif graph.node:
        graph.node.add().CopyFrom(_pick(graph.node, rng))


def _shadowed(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Give something in a subgraph the name of a value outside."""
    for graph in _graphs(model)[1:]:
        if rng.random() < 0.5 and graph.input:
            _pick(graph.input, rng).name = _pick(_names(model), rng)
        elif graph.node and graph.node[0].output:
            graph.node[0].output[0] = _pick(_names(model), rng)


def _outputs(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Give out inputs, initializers, what does not exist, the same twice, or nothing."""
    graph = _pick(_graphs(model), rng)
    kind = int(rng.integers(4))
    if kind == 0:
        graph.output.add().name = _pick(("x", "w", "c", "nowhere", "", "h0", "b"), rng)
    elif kind == 1 and graph.output:
        graph.output.add().CopyFrom(_pick(graph.output, rng))
    elif kind == 2:
        del graph.output[:]
    elif graph.output:
        _pick(graph.output, rng).name = _pick(_names(model), rng)


def _arity(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Give a node more or fewer inputs or outputs."""
    node = _node(model, rng)
    field = node.input if rng.random() < 0.6 else node.output
    kind = int(rng.integers(4))
    if kind == 0:
        field.extend(_pick(_names(model), rng) for _ in range(int(_pick((1, 2, 30, 3000), rng))))
    elif kind == 1:
        del field[:]
    elif kind == 2 and field:
        del field[int(rng.integers(len(field)))]
    else:
        field.insert(0, "")


def _recursion(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Let functions call themselves, each other, or one that is missing."""
    count = int(_pick((1, 2, 3, 40), rng))
    ring = int(rng.integers(3))
    for i in range(count):
        callee = {0: f"F{(i + 1) % count}", 1: f"F{i + 1}" if i + 1 < count else "Missing", 2: f"F{i}"}[ring]
        function = model.functions.add(name=f"F{i}", domain="local", input=["p"], output=["q"])
        function.node.add(op_type=callee, domain="local", input=["p"], output=["q"])
        if rng.random() < 0.8:
            function.opset_import.add(domain="local", version=1)
    model.graph.node.add(op_type="F0", domain="local", input=["x"], output=["recursive"])
    model.graph.output.add().name = "recursive"


def _doubling(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Let each function call the next one twice: 2^depth nodes when they are expanded."""
    depth = int(_pick((3, 10, 18, 30, 200), rng))
    for i in range(depth):
        function = model.functions.add(name=f"D{i}", domain="local", input=["p"], output=["q"])
        last = i + 1 == depth
        for given, made in (("p", "m"), ("m", "q")):
            node = function.node.add(op_type="Relu" if last else f"D{i + 1}", input=[given], output=[made])
            node.domain = "" if last else "local"
        function.opset_import.add(domain="", version=20)
        function.opset_import.add(domain="local", version=1)
    model.graph.node.add(op_type="D0", domain="local", input=["x"], output=["doubled"])
    model.graph.output.add().name = "doubled"


def _functions(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Change a function: its name, inputs, outputs, attributes, or define it twice."""
    if not model.functions:
        return
    function = _pick(model.functions, rng)
    kind = int(rng.integers(7))
    if kind == 0:
        model.functions.add().CopyFrom(function)
    elif kind == 1:
        function.input.append(_pick(("p", "", "extra"), rng))
    elif kind == 2:
        function.output.append(_pick(("p", "q", "nowhere", ""), rng))
    elif kind == 3:
        function.name, function.domain = _pick((("Add", ""), ("", "local"), ("Twice", ""), ("If", "")), rng)
    elif kind == 4:
        function.attribute.extend(["alpha", "alpha", ""][: 1 + int(rng.integers(3))])
    elif kind == 5 and function.node:
        attribute = _pick(function.node, rng).attribute.add(name="axis", type=2)
        attribute.ref_attr_name = _pick(("alpha", "nowhere", ""), rng)
    else:
        del function.node[:]


def _attributes(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Give a node huge, doubled, untyped or contradictory attributes."""
    node = _node(model, rng)
    kind = int(rng.integers(6))
    name = _pick(("axis", "axes", "body", "then_branch", "keepdims", "value", "num_scan_inputs", "zzz", ""), rng)
    attribute = node.attribute.add(name=name)
    if kind == 0:
        attribute.type = 7
        attribute.ints.extend([1] * int(_pick((1, 1000, 100_000), rng)))
    elif kind == 1:
        attribute.type = int(rng.integers(15))
    elif kind == 2:
        attribute.i, attribute.f, attribute.s, attribute.type = 1, 2.0, b"x", int(rng.integers(5))
    elif kind == 3:
        attribute.type = 5
        _copy_graph(_pick(_graphs(model), rng), attribute.g)
    elif kind == 4:
        for i in range(int(_pick((2, 5000), rng))):
            node.attribute.add(name=f"a{i}", type=2, i=i)
    elif len(node.attribute) > 1:
        attribute.CopyFrom(node.attribute[0])


def _subgraph(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Take away, empty or exchange the subgraphs of a node."""
    owners = [node for body in _bodies(model) for node in body.node if any(a.HasField("g") for a in node.attribute)]
    if not owners:
        return
    node = _pick(owners, rng)
    held = [attribute for attribute in node.attribute if attribute.HasField("g")]
    attribute, kind = _pick(held, rng), int(rng.integers(6))
    if kind == 0:
        node.attribute.remove(attribute)
    elif kind == 1:
        attribute.g.Clear()
    elif kind == 2:
        _copy_graph(_pick(_graphs(model), rng), attribute.g)
    elif kind == 3 and attribute.g.input:
        del attribute.g.input[int(rng.integers(len(attribute.g.input)))]
    elif kind == 4:
        attribute.g.input.add().name = _pick(("extra", "x", ""), rng)
    else:
        node.op_type = _pick(("If", "Loop", "Scan", "SequenceMap", "Relu", "Twice"), rng)


def _copy_graph(source: onnx.GraphProto, target: onnx.GraphProto) -> None:
    """Copy by bytes: the target may be a part of the source."""
    content = source.SerializeToString()
    with contextlib.suppress(DecodeError):  # nested too deeply
        target.ParseFromString(content)


def _capture(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Let a subgraph read what is defined later, in another subgraph, or nowhere."""
    graphs = [graph for graph in _graphs(model)[1:] if graph.node]
    if graphs:
        node = _pick(_pick(graphs, rng).node, rng)
        name = _pick(("y", "h5", "sums", "nowhere", "then_branch_y", "row", "a", "i", "p", "c", "w"), rng)
        if node.input:
            node.input[0] = name
        else:
            node.input.append(name)


def _deep(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Nest branches, loops or functions deeply."""
    depth = int(_pick((2, 5, 12, 28), rng))  # 33 levels are as many as protobuf reads
    kind = _pick(("If", "Loop"), rng)
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
    from onnx import TensorProto, helper

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
    """Let a node hold a graph of the next level."""
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


def _wide(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Add many nodes, inputs, initializers or outputs."""
    count, kind = int(_pick((10, 300, 2000), rng)), int(rng.integers(5))
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


def _opsets(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Remove, double or misdate the operator sets and the version of the format."""
    kind = int(rng.integers(5))
    if kind == 0:
        del model.opset_import[:]
    elif kind == 1 and model.opset_import:
        model.opset_import.add(
            domain=_pick(("", "local", "zzz"), rng), version=int(_pick((0, 1, 7, 13, 99, 2**40), rng))
        )
    elif kind == 2 and model.opset_import:
        _pick(model.opset_import, rng).version = int(_pick((-1, 0, 1, 6, 12, 99, 2**62), rng))
    elif kind == 3:
        model.ir_version = int(_pick((-1, 0, 1, 3, 2**62), rng))
    elif model.functions:
        del model.functions[0].opset_import[:]


def _types(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Declare types of values that contradict what computes them, or no types."""
    values = [v for graph in _graphs(model) for v in (*graph.input, *graph.output)]
    if rng.random() < 0.3:
        values.append(model.graph.value_info.add(name=_pick(_names(model), rng)))
    value, kind = _pick(values or [model.graph.value_info.add()], rng), int(rng.integers(6))
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
        for _ in range(int(_pick((2, 20, 90), rng))):
            inner = inner.sequence_type.elem_type
        inner.tensor_type.elem_type = 1
    else:
        for _ in range(int(_pick((1, 5, 70), rng))):
            value.type.tensor_type.shape.dim.add().dim_value = int(_pick((-1, 0, 1, 4, 2**62), rng))


def _operator(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Exchange the operator of a node."""
    node = _node(model, rng)
    node.op_type = _pick(
        ("If", "Loop", "Scan", "Constant", "SequenceConstruct", "Optional", "Twice", "Concat", "zzz"), rng
    )
    if rng.random() < 0.4:
        node.domain = _pick(("", "local", "com.microsoft", "ai.onnx.ml", "zzz"), rng)


def _initializers(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Make initializers sparse, nameless, of strange shapes, or inputs at the same time."""
    graph, kind = _pick(_graphs(model), rng), int(rng.integers(5))
    if kind == 0:
        graph.initializer.add(data_type=1, dims=[1] * int(_pick((0, 8, 65, 1000), rng)), float_data=[1.0])
    elif kind == 1:
        sparse = graph.sparse_initializer.add(dims=[4, 4])
        sparse.values.name = _pick(("w", "sparse", ""), rng)
        sparse.indices.dims.append(int(_pick((0, 1, 2**40), rng)))
    elif kind == 2 and model.graph.initializer:
        name = _pick(model.graph.initializer, rng).name
        model.graph.input.add().CopyFrom(model.graph.input[0])
        model.graph.input[-1].name = name
    elif kind == 3:
        for i in range(int(_pick((10, 2000), rng))):
            graph.initializer.add(name=f"w{i}", data_type=1, dims=[1], float_data=[float(i)])
    elif graph.initializer:
        _pick(graph.initializer, rng).name = _pick(_names(model), rng)


def _empty(model: onnx.ModelProto, rng: np.random.Generator) -> None:
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


MUTATIONS: tuple[Callable[[onnx.ModelProto, np.random.Generator], None], ...] = (
    _dangling_value, _cycle, _shuffled, _two_definitions, _shadowed, _outputs, _arity, _recursion, _doubling,
    _functions, _attributes, _subgraph, _capture, _deep, _wide, _opsets, _types, _operator, _initializers, _empty,
)  # fmt: skip
