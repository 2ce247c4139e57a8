"""The model whose structure is changed, and its parts: graphs, bodies, nodes, names."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from onnx import parser

if TYPE_CHECKING:
    import onnx

ODD_NAMES = ("", "x", "y", "h0", "h1", "w", "c", "nowhere", "main", "%0", "x:0", " ", "h0.1", "y\x00", "ü")
_TEXT = """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
g (float[DIM, 4] x, bool c) => (float[DIM, 4] y, float[] sums)
<float[4, 4] w = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, int64 trips = {3}, float[4] zero = {0, 0, 0, 0}>
{
  [product] h0 = MatMul(x, w)
  [call] h1 = local.Twice(h0)
  [choice] h2 = If <
    else_branch = else_branch () => (float[DIM, 4] else_branch_y) { else_branch_y = Identity(h0) },
    then_branch = then_branch () => (float[DIM, 4] then_branch_y) { then_branch_y = Neg(h0) }>(c)
  [loop] h3, sums = Loop <
    body = body (int64 i, bool go, float[DIM, 4] a) => (bool on, float[DIM, 4] b, float s) {
      b = Add(a, h0)
      on = Identity(go)
      s = ReduceSum<keepdims = 0>(b)
    }>(trips, , h1)
  [scan] h4, rows = Scan <
    body = step (float[4] state, float[4] row) => (float[4] next, float[4] each) {
      next = Add(state, row)
      each = Identity(next)
    }, num_scan_inputs = 1>(zero, h2)
  [sum] h5 = Sum(h1, h2, h3)
  [last] y = Add(h5, h4)
}
<domain: "local", opset_import: ["" : 20]>
Twice (p) => (q) { [both] q = Add(p, p) }
"""
"""A model with a subgraph of each kind, a function, weights."""


def model_to_change(rng: np.random.Generator) -> onnx.ModelProto:
    """Return the model that is changed, with a dim that is known or dynamic."""
    return parser.parse_model(_TEXT.replace("DIM", pick(("2", "n"), rng)))


T = TypeVar("T")


def pick(items: Sequence[T], rng: np.random.Generator) -> T:
    return items[int(rng.integers(len(items)))]


def graphs_of(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """Return the graph and its subgraphs, the outermost first."""
    graphs = [model.graph]
    for graph in graphs:
        graphs += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return graphs


def bodies_of(model: onnx.ModelProto) -> list[onnx.GraphProto | onnx.FunctionProto]:
    """Return all parts with nodes: graphs and functions that are not empty."""
    return [body for body in (*graphs_of(model), *model.functions) if body.node]


def pick_node(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.NodeProto:
    bodies = bodies_of(model)
    return pick(pick(bodies, rng).node, rng) if bodies else model.graph.node.add(op_type="Relu")


def value_names(model: onnx.ModelProto) -> list[str]:
    named = {name for body in bodies_of(model) for node in body.node for name in (*node.input, *node.output)}
    return [*sorted(named), *ODD_NAMES]


def copy_graph(source: onnx.GraphProto, target: onnx.GraphProto) -> None:
    """Copy by bytes: the target may be a part of the source."""
    content = source.SerializeToString()
    with contextlib.suppress(DecodeError):  # nested too deeply
        target.ParseFromString(content)
