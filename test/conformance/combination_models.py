"""The model of a combination, its inputs, its expected results, and the options of its rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
from combination_cells import OPERATORS, Cell, Subject
from combination_parts import BY_RULE, triple
from onnx import helper

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.driver.models import open_model
from mirlo.extend.ops import elementwise
from mirlo.extend.rules import LEGALIZE, legalize
from mirlo.tools.explain.model import explain_model
from mirlo.tools.explain.report import only_node

ROWS, COLS = 4, 16
ITERATIONS = 3
"""Of a loop: an odd number, as two negations are none."""
CONSTANTS = {"axis": np.array(1, np.int64), "scale": np.array(1, np.float32), "zero": np.array(0, np.int8)}
"""The axis of sums, and a scale and a zero point with which the inputs are exact in bytes."""


class Unavailable(Exception):
    """A combination that cannot be expressed."""


def model_of(cell: Cell) -> onnx.ModelProto | ir.Module:
    """Return the model of a cell: the operator, then sums along rows."""
    model = onnx_model(cell)
    return with_helper(model) if cell.place == "helper" else model


def onnx_model(cell: Cell) -> onnx.ModelProto:
    """Return the model of a cell without public functions."""
    subject = OPERATORS[cell.operator]
    kind = "Triple" if (cell.operator, cell.rule) == ("custom", "hand-written") else subject.node
    value, f32, i64, boolean = helper.make_tensor_value_info, 1, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
    rows: int | str = "rows" if cell.place == "dynamic" else ROWS
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()]
    at = helper.make_node("CumSum", ["t", "axis"], ["y"], name="sums")
    if cell.place == "loop":
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["c"], ["again"]),
                *_nodes(subject, kind, "v", "u"),
            ],
            "body",
            [value("i", i64, []), value("c", boolean, []), value("v", f32, [rows, COLS])],
            [value("again", boolean, []), value("u", f32, [rows, COLS])],
        )
        first = [helper.make_node("Loop", ["n", "", "x"], ["t"], name="loop", body=body)]
    else:
        first = _nodes(subject, kind, "x", "t")
    inputs = [value("x", f32, [rows, COLS])] + ([value("n", i64, [])] if cell.place == "loop" else [])
    graph = helper.make_graph([*first, at], "combination", inputs, [value("y", f32, [rows, COLS])], constants)
    opsets = [helper.make_opsetid(d, 18 if not d else 1) for d in dict.fromkeys(("", subject.domain))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _nodes(subject: Subject, kind: str, x: str, result: str) -> list[onnx.NodeProto]:
    """Return the nodes of a subject, of which the last is named "op", between casts to bytes and back for bytes."""
    if not subject.steps:
        return [helper.make_node(kind, [x], [result], name="op", domain=subject.domain)]
    is_quantized = "QuantizeLinear" in subject.steps
    steps = ["QuantizeLinear", *subject.steps, "DequantizeLinear"] if is_quantized else list(subject.steps)
    names = [x, *(f"{result}_{i}" for i in range(1, len(steps))), result]
    last = len(steps) - 1 - is_quantized
    return [
        helper.make_node(
            step, [names[i], *(("scale", "zero") if "Linear" in step else ())], [names[i + 1]],
            name="op" if i == last else f"step{i}",
        )
        for i, step in enumerate(steps)
    ]  # fmt: skip


def with_helper(model: onnx.ModelProto) -> ir.Module:
    """Return a model as a module whose `@main` calls a public function for its first node of one input."""
    text = open_model(model).module.operation.get_asm(enable_debug_info=True)
    pattern = r"^ *(%\d+) = .*\((%\w+)\).* : \((tensor<[^(),]*f32>)\) -> \3.*$"
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, text
    node, (result, operand, kind) = found.group(), found.groups()
    body = node.replace(f"({operand})", "(%arg0)")
    function = f"func.func @helper(%arg0: {kind}) -> {kind} {{\n{body}\n    return {result} : {kind}\n  }}\n"
    text = text.replace(node, f"    {result} = func.call @helper({operand}) : ({kind}) -> {kind}")
    with make_context():
        return ir.Module.parse(text.replace("  func.func @main", f"  {function}  func.func @main", 1))


def node_of(cell: Cell) -> str:
    """Return the name of the operator's node."""
    return "loop/op" if cell.place == "loop" else "op"


def feeds_of(cell: Cell) -> dict[str, np.ndarray]:
    """Return inputs: small integers, whose sums are exact; and the iterations of a loop."""
    x = np.arange(ROWS * COLS, dtype=np.float32).reshape(ROWS, COLS) % 7 - 3
    return {"x": x, **({"n": np.array(ITERATIONS, np.int64)} if cell.place == "loop" else {})}


def expected(cell: Cell) -> np.ndarray:
    """Return what the rule of a cell makes of the inputs."""
    factor = OPERATORS[cell.operator].factor if cell.rule == "default" else BY_RULE
    times = ITERATIONS if cell.place == "loop" else 1
    return np.cumsum(feeds_of(cell)["x"] * np.float32(factor**times), 1, dtype=np.float32)


def target_of(cell: Cell) -> str:
    """Return the list of targets of a cell."""
    first = ["taker"] if cell.rule == "generator" else []
    if cell.place == "region":
        first.append("region")
    if cell.place == "several":
        first.append("neighbour")
    return ",".join([*first, "llvm"])


def tripled(op: Any, b: Any) -> Any:
    """Multiply by what no operator means."""
    return elementwise(op, b, [op.x], lambda x: x * BY_RULE)


def by_hand(op: Any, b: Any) -> Any:
    """Call loops that are written in Python."""
    return b.call_prim_func(triple, op.x)


@dataclass
class Options:
    """What a cell passes to `mirlo.compile` and the tools."""

    target: str
    given: dict[str, Any] = field(default_factory=dict)


def options_of(cell: Cell) -> Options:
    """Return the options of a cell; rules of its target are registered until `forget`."""
    subject = OPERATORS[cell.operator]
    options = Options(target_of(cell))
    if cell.rule in ("target", "hand-written") and subject.name:
        rule = tripled if cell.rule == "target" else by_hand
        legalize(subject.name, target="region" if cell.place == "region" else "llvm", priority=99)(rule)
    if cell.rule in ("target", "compilation") and not subject.name:
        raise Unavailable("no operator")
    if cell.rule == "compilation":
        options.given["legalize"] = {subject.name: tripled}
    if cell.rule == "tensorized":
        options.given["schedules"] = {kernel_of(cell): tensorized(cell)}
    return options


def forget() -> None:
    """Remove the rules that a cell registered."""
    for subject in OPERATORS.values():
        for target in ("llvm", "region"):
            rules = LEGALIZE._rules.get((subject.name, target), [])
            rules[:] = [rule for rule in rules if rule.function not in (tripled, by_hand)]


@cache
def kernel_name(operator: str, place: str) -> str:
    """Return the kernel that computes the operator."""
    cell = Cell(operator, "default", place, "compile")
    (node,) = only_node(explain_model(model_of(cell), target_of(cell)), node_of(cell)).nodes
    return node.kernels[0]


def kernel_of(cell: Cell) -> str:
    return kernel_name(cell.operator, cell.place)


def tensorized(cell: Cell) -> Callable[[Any], None]:
    """Return a schedule that hands eight columns at once to a C function."""

    def by_columns(s: Any) -> None:
        (block,) = s.blocks()
        _, columns = s.loops(block)
        _, inner = s.split(columns, (None, 8))
        s.tensorize(inner, f"combos.{cell.operator}")

    return by_columns
