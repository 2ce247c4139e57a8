"""Gathering, scattering, sorting."""

from __future__ import annotations

from typing import Any

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter

REDUCTIONS = ("none", "add", "mul", "max", "min")


@converter("Gather")
def gather(node: Node) -> Any:
    return node.emit("gather", node[0], node[1], axis=node.attr.int("axis", 0))


@converter("GatherElements")
def gather_elements(node: Node) -> Any:
    return node.emit("gather_elements", node[0], node[1], axis=node.attr.int("axis", 0))


@converter("GatherND")
def gather_nd(node: Node) -> Any:
    return node.emit("gather_nd", node[0], node[1], batch_dims=node.attr.int("batch_dims", 0))


@converter("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> Any:
    return node.emit(
        "scatter_elements",
        node[0],
        node[1],
        node[2],
        axis=node.attr.int("axis", 0),
        reduction=node.attr.choice("reduction", "none", REDUCTIONS),
    )


@converter("ScatterND")
def scatter_nd(node: Node) -> Any:
    reduction = node.attr.choice("reduction", "none", REDUCTIONS)
    return node.emit("scatter_nd", node[0], node[1], node[2], reduction=reduction)


@converter("OneHot")
def one_hot(node: Node) -> Any:
    depth = node.scalar(1)
    if depth < 1:
        raise NodeError(f"input 'depth' must be at least 1, got {depth}")
    indices = node[0]
    if node.type(0).dtype.is_float:
        indices = node.emit("cast", indices, dtype="i64")
    return node.emit("one_hot", indices, node[2], depth=int(depth), axis=node.attr.int("axis", -1))


@converter("TopK", since=10)
def top_k(node: Node) -> Any:
    return _top_k(node, node.scalar(1))


@converter("TopK")
def top_k_attribute(node: Node) -> Any:
    return _top_k(node, node.attr.int("k"))


def _top_k(node: Node, count: Any) -> Any:
    return node.emit(
        "topk",
        node[0],
        k=int(count),
        axis=node.attr.int("axis", -1),
        largest=node.attr.bool("largest", 1),
        sorted=node.attr.bool("sorted", 1),
    )
