"""How the time of a compilation grows with the size of a model, for shapes of models that once made it quadratic.

    python -m benchmarks.compile_scale [chain split inputs sum concat max loops functions]

Seconds of the processor, without the cache, and milliseconds for each node, output, input, level or call.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from onnx import ModelProto, TensorProto, helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
_value, _node = helper.make_tensor_value_info, helper.make_node


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], functions: Sequence[Any] = ()) -> ModelProto:
    opsets = [helper.make_opsetid("", 18)] + ([helper.make_opsetid("local", 1)] if functions else [])
    graph = helper.make_graph(nodes, "scale", inputs, outputs)
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

    def made(count: int) -> ModelProto:
        names = [f"x{i}" for i in range(count)]
        attributes = {"axis": 0} if operator == "Concat" else {}
        node = _node(operator, names, ["y"], **attributes)
        return _model([node], [_value(name, FLOAT, [4]) for name in names], [_value("y", FLOAT, None)])

    return made


def loops(depth: int) -> ModelProto:
    """Return loops inside of each other, whose trip count is an input."""

    def body(level: int) -> Any:
        if level + 1 == depth:
            step = _node("Neg", [f"a{level}"], [f"b{level}"])
        else:
            step = _node("Loop", ["trips", "", f"a{level}"], [f"b{level}"], body=body(level + 1))
        given = [_value(f"i{level}", INT64, []), _value(f"c{level}", BOOL, []), _value(f"a{level}", FLOAT, [4])]
        values = [_value(f"d{level}", BOOL, []), _value(f"b{level}", FLOAT, [4])]
        return helper.make_graph([_node("Identity", [f"c{level}"], [f"d{level}"]), step], f"g{level}", given, values)

    node = _node("Loop", ["trips", "", "x"], ["y"], body=body(0))
    return _model([node], [_value("x", FLOAT, [4]), _value("trips", INT64, [])], [_value("y", FLOAT, [4])])


def functions(depth: int) -> ModelProto:
    """Return functions that call the next one twice: 2^depth nodes, of which more than 50,000 are refused."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    made = []
    for level in range(depth):
        operator, domain = ("Relu", "") if level + 1 == depth else (f"D{level + 1}", "local")
        nodes = [_node(operator, [a], [b], domain=domain) for a, b in (("p", "m"), ("m", "q"))]
        made.append(helper.make_function("local", f"D{level}", ["p"], ["q"], nodes, opsets))
    call = _node("D0", ["x"], ["y"], domain="local")
    return _model([call], [_value("x", FLOAT, [4])], [_value("y", FLOAT, [4])], made)


SHAPES: dict[str, tuple[Callable[[int], ModelProto], tuple[int, ...]]] = {
    "chain": (chain, (1000, 5000, 20000)),
    "split": (split, (250, 1000, 4000)),
    "inputs": (inputs, (250, 1000, 4000)),
    "sum": (variadic("Sum"), (1250, 5000)),
    "concat": (variadic("Concat"), (1250, 5000)),
    "max": (variadic("Max"), (1250, 5000)),
    "loops": (loops, (6, 12, 20)),
    "functions": (functions, (5, 10, 15, 20)),
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
