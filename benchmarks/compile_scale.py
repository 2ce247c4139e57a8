"""How the time of a compilation grows with the size of a model, for shapes of models that once made it quadratic.

    python -m benchmarks.compile_scale [chain split inputs sum concat max loops functions experts mixture ...]

Seconds of the processor, without the cache, and milliseconds for each node, output, input, level or call.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
_value, _node = helper.make_tensor_value_info, helper.make_node


def _model(
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    functions: Sequence[Any] = (),
    weights: Sequence[TensorProto] = (),
) -> ModelProto:
    domains = {node.domain for node in nodes} - {""}
    opsets = [helper.make_opsetid("", 18), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    opsets += [helper.make_opsetid("local", 1)] if functions and "local" not in domains else []
    graph = helper.make_graph(nodes, "scale", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))


def chain(count: int) -> ModelProto:
    """Return elementwise nodes, each of which reads the one before."""
    operators = ("Neg", "Relu", "Sigmoid")
    nodes = [_node(operators[i % 3], [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    return _model(nodes, [_value("v0", FLOAT, [4])], [_value(f"v{count}", FLOAT, [4])])


def split(count: int) -> ModelProto:
    """Return a Split into this many outputs of the model."""
    names = [f"y{i}" for i in range(count)]
    node = _node("Split", ["x"], names, num_outputs=count, axis=0)
    return _model([node], [_value("x", FLOAT, [count, 4])], [_value(name, FLOAT, None) for name in names])


def inputs(count: int) -> ModelProto:
    """Return a model with this many inputs and outputs."""
    nodes = [_node("Add", [f"x{i}", f"x{(i + 1) % count}"], [f"y{i}"]) for i in range(count)]
    return _model(nodes, *([_value(f"{name}{i}", FLOAT, [4]) for i in range(count)] for name in "xy"))


def variadic(operator: str) -> Callable[[int], ModelProto]:
    """Return a model of one node with this many operands, as a function of their number."""

    def build(count: int) -> ModelProto:
        names = [f"x{i}" for i in range(count)]
        attributes = {"axis": 0} if operator == "Concat" else {}
        node = _node(operator, names, ["y"], **attributes)
        return _model([node], [_value(name, FLOAT, [4]) for name in names], [_value("y", FLOAT, None)])

    return build


def loops(depth: int) -> ModelProto:
    """Return loops inside of each other, whose trip count is an input."""

    def body(level: int) -> Any:
        if level + 1 == depth:
            step = _node("Neg", [f"a{level}"], [f"b{level}"])
        else:
            step = _node("Loop", ["trips", "", f"a{level}"], [f"b{level}"], body=body(level + 1))
        graph_inputs = [_value(f"i{level}", INT64, []), _value(f"c{level}", BOOL, []), _value(f"a{level}", FLOAT, [4])]
        values = [_value(f"d{level}", BOOL, []), _value(f"b{level}", FLOAT, [4])]
        return helper.make_graph(
            [_node("Identity", [f"c{level}"], [f"d{level}"]), step], f"g{level}", graph_inputs, values
        )

    node = _node("Loop", ["trips", "", "x"], ["y"], body=body(0))
    return _model([node], [_value("x", FLOAT, [4]), _value("trips", INT64, [])], [_value("y", FLOAT, [4])])


def functions(depth: int) -> ModelProto:
    """Return functions that call the next one twice: 2^depth nodes, of which more than 50,000 are refused."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    definitions = []
    for level in range(depth):
        operator, domain = ("Relu", "") if level + 1 == depth else (f"D{level + 1}", "local")
        nodes = [_node(operator, [a], [b], domain=domain) for a, b in (("p", "m"), ("m", "q"))]
        definitions.append(helper.make_function("local", f"D{level}", ["p"], ["q"], nodes, opsets))
    call = _node("D0", ["x"], ["y"], domain="local")
    return _model([call], [_value("x", FLOAT, [4])], [_value("y", FLOAT, [4])], definitions)


def experts(count: int) -> ModelProto:
    """Return a mixture of experts, each of which computes the rows that chose it, found by a NonZero of its own."""
    width = 16
    rng = np.random.default_rng(0)

    def weight(name: str, columns: int) -> TensorProto:
        return numpy_helper.from_array(rng.normal(size=(width, columns)).astype(np.float32), name)

    nodes = [
        _node("MatMul", ["x", "gate"], ["scores"]),
        _node("ArgMax", ["scores"], ["chosen"], axis=1, keepdims=0),
        _node("Sub", ["x", "x"], ["y0"]),
    ]
    weights = [weight("gate", count)]
    for i in range(count):
        weights += [numpy_helper.from_array(np.array(i), f"number{i}"), weight(f"w{i}", width)]
        nodes += [
            _node("Equal", ["chosen", f"number{i}"], [f"is{i}"]),
            _node("NonZero", [f"is{i}"], [f"at{i}"]),
            _node("Transpose", [f"at{i}"], [f"rows{i}"], perm=[1, 0]),
            _node("GatherND", ["x", f"rows{i}"], [f"x{i}"]),
            _node("MatMul", [f"x{i}", f"w{i}"], [f"product{i}"]),
            _node("Relu", [f"product{i}"], [f"result{i}"]),
            _node("ScatterND", [f"y{i}", f"rows{i}", f"result{i}"], [f"y{i + 1}"]),
        ]
    return _model(nodes, [_value("x", FLOAT, ["n", width])], [_value(f"y{count}", FLOAT, None)], weights=weights)


def mixture(count: int) -> ModelProto:
    """Return a mixture of experts as one node, of which each token chooses two."""
    width, inner = 32, 24
    rng = np.random.default_rng(0)
    shapes = {"gate": (width, count), "up": (count, inner, width), "down": (count, width, inner)}
    weights = [numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), n) for n, shape in shapes.items()]
    operands = ["x", "scores", "up", "", "down"]
    nodes = [
        _node("MatMul", ["x", "gate"], ["scores"]),
        _node("MoE", operands, ["y"], domain="com.microsoft", k=2, activation_type="silu"),
    ]
    return _model(nodes, [_value("x", FLOAT, ["n", width])], [_value("y", FLOAT, None)], weights=weights)


def data_sizes(count: int) -> ModelProto:
    """Return a chain of nodes, of which one in ten has a result whose size data determine."""
    operators = ("Neg", "Abs", "Exp", "Neg", "Abs", "Sqrt", "Neg", "Neg")
    nodes: list[Any] = []
    last = "x"
    for i in range(count // (len(operators) + 2)):
        nodes += [_node("Greater", [last, "zero"], [f"is{i}"]), _node("Compress", [last, f"is{i}"], [f"v{i}"], axis=0)]
        last = f"v{i}"
        for number, operator in enumerate(operators):
            nodes.append(_node(operator, [last], [f"v{i}_{number}"]))
            last = f"v{i}_{number}"
    zero = numpy_helper.from_array(np.float32(0), "zero")
    return _model(nodes, [_value("x", FLOAT, ["n"])], [_value(last, FLOAT, None)], weights=[zero])


def neighbours(rows: int) -> ModelProto:
    """Return a nearest-neighbors classifier over a constant of this number of rows, read by a Scan (needs skl2onnx)."""
    from skl2onnx import to_onnx
    from sklearn.neighbors import KNeighborsClassifier

    x = np.random.default_rng(0).normal(size=(rows, 8)).astype(np.float32)
    return to_onnx(KNeighborsClassifier().fit(x, x[:, 0] > 0), x[:1], options={"zipmap": False})


SHAPES: dict[str, tuple[Callable[[int], ModelProto], tuple[int, ...]]] = {
    "chain": (chain, (1000, 5000, 20000)),
    "split": (split, (250, 1000, 4000)),
    "inputs": (inputs, (250, 1000, 4000)),
    "sum": (variadic("Sum"), (1250, 5000)),
    "concat": (variadic("Concat"), (1250, 5000)),
    "max": (variadic("Max"), (1250, 5000)),
    "loops": (loops, (6, 12, 20)),
    "functions": (functions, (5, 10, 15, 20)),
    "experts": (experts, (8, 32, 128)),
    "mixture": (mixture, (8, 32, 128)),
    "sizes": (data_sizes, (300, 1000, 3000, 10000)),
    "neighbours": (neighbours, (600, 2400, 9600)),
}


def main(names: Sequence[str]) -> None:
    """Compile models of some shapes and print a table."""
    import mirlo

    mirlo.compile(chain(3), cache=False, jobs=1)  # imports
    print("shape         size  seconds  ms each")
    for name in names or SHAPES:
        build, sizes = SHAPES[name]
        for size in sizes:
            model = build(size)
            start = time.process_time()
            try:
                mirlo.compile(model, cache=False, jobs=1)
                note = ""
            except mirlo.MirloError as error:
                note = f"  refused: {str(error)[:60]}..."
            seconds = time.process_time() - start
            print(f"{name:10} {size:7}  {seconds:7.2f}  {1e3 * seconds / size:7.2f}{note}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
