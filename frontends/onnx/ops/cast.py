"""Conversions of element types."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter


@converter("Cast")
def cast(node: Node) -> Any:
    return _cast(node, onnx_dtype(node.attr.int("to"), "attribute 'to'").dtype)


@converter("CastLike")
def cast_like(node: Node) -> Any:
    node.ignore(1)
    return _cast(node, node.type(1).dtype)


@converter("BitCast", since=26)
def bit_cast(node: Node) -> Any:
    return node.emit("bitcast", node[0], dtype=onnx_dtype(node.attr.int("to"), "attribute 'to'").dtype)


def _cast(node: Node, wanted: DType) -> Any:
    saturate = node.attr.bool("saturate", 1)
    if wanted.name != "f8e8m0":
        node.attr.ignore("round_mode")
    if node.type(0).dtype is wanted:
        return node.value(0)
    return node.emit("cast", node[0], dtype=wanted, saturate=saturate)
