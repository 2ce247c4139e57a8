"""Sequences of tensors: lists at import, so that what is left of them in the IR is the tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import ListValue, Value, constant

MOST_PIECES = 4096


@converter("SequenceConstruct")
def construct(node: Node) -> Any:
    items = tuple(node.value(i) for i in range(len(node)))
    return ListValue(node.outputs[0], items[0].type.dtype, items)


@converter("SequenceEmpty")
def empty(node: Node) -> Any:
    return ListValue(node.outputs[0], onnx_dtype(node.attr.int("dtype", 1), "attribute 'dtype'").dtype, ())


@converter("SequenceInsert")
def insert(node: Node) -> Any:
    found, tensor = node.sequence(0), node.value(1)
    if tensor.type.dtype is not found.dtype:
        raise NodeError(f"input 'tensor' is {tensor}, but input 'input_sequence' is {found}")
    at = _position(node, 2, len(found.items), len(found.items)) if node.has(2) else len(found.items)
    return ListValue(node.outputs[0], found.dtype, (*found.items[:at], tensor, *found.items[at:]))


@converter("SequenceErase")
def erase(node: Node) -> Any:
    found = node.sequence(0)
    at = _position(node, 1, len(found.items), len(found.items) - 1) if node.has(1) else len(found.items) - 1
    if at < 0:
        raise NodeError("input 'input_sequence' is empty: there is nothing to erase")
    return ListValue(node.outputs[0], found.dtype, (*found.items[:at], *found.items[at + 1 :]))


@converter("SequenceAt")
def at(node: Node) -> Any:
    found = node.sequence(0)
    return found.items[_position(node, 1, len(found.items), len(found.items) - 1)]


@converter("SequenceLength")
def length(node: Node) -> Any:
    return constant(node.outputs[0], np.array(len(node.sequence(0).items), np.int64))


def _position(node: Node, index: int, count: int, most: int) -> int:
    """A constant position, counted from the end where it is negative."""
    position = int(node.scalar(index))
    if not -count <= position <= most:
        raise NodeError(f"input 'position' is {position}, outside a sequence of {count}")
    return position + count if position < 0 else position


@converter("SplitToSequence")
def split_to_sequence(node: Node) -> Any:
    x, axis = node.type(0), node.attr.int("axis", 0)
    keepdims = node.attr.bool("keepdims", 1)
    if not -x.rank <= axis < x.rank:
        raise NodeError(f"attribute 'axis' is {axis}, outside a tensor of rank {x.rank}")
    sizes = _piece_sizes(node, x.shape[axis])
    pieces = node.emit("split", node[0], axis=axis, sizes=sizes) if len(sizes) > 1 else (node[0],)
    if not node.has(1) and not keepdims:
        pieces = tuple(node.emit("squeeze", piece, axes=[axis]) for piece in pieces)
    items = tuple(Value(f"{node.outputs[0]}[{i}]", type_of(piece), ir=piece) for i, piece in enumerate(pieces))
    return ListValue(node.outputs[0], x.dtype, items)


def _piece_sizes(node: Node, size: Dim) -> tuple[Dim, ...]:
    """Sizes given, or as many pieces of one given size as there are, or pieces of one."""
    if node.has(1) and node.type(1).rank == 1:
        return node.dims(1)
    piece = int(node.scalar(1, 1))
    if not isinstance(size, int) or piece < 1:
        raise NodeError(f"a dim of {size} cannot be split into pieces of {piece}: the size must be known")
    if size // piece > MOST_PIECES:
        raise NodeError(
            f"a dim of {size} in pieces of {piece} makes more than {MOST_PIECES} pieces, which is not supported"
        )
    return (piece,) * (size // piece) + ((size % piece,) if size % piece else ())


@converter("ConcatFromSequence")
def concat_from_sequence(node: Node) -> Any:
    found, axis = node.sequence(0), node.attr.int("axis")
    if not found.items:
        raise NodeError("input 'input_sequence' is empty: the shape of the result is not known")
    name = "stack" if node.attr.bool("new_axis", 0) else "concat"
    return node.emit(name, [node.builder.ssa(item) for item in found.items], axis=axis)
