"""Sequences and optional values: lists if known at import, else run-time objects."""

from __future__ import annotations

from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import STRING_CODE
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.objects import common_kind
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import (
    AnyValue,
    Converted,
    ListValue,
    ObjectValue,
    OptionalValue,
    join,
    kind_of,
)
from mirlo.frontends.tensor import Tensor, concat, stack
from mirlo.runtime.kinds import OPTIONAL, STRING, Kind, sequence_of

MAX_ITEMS = 4096
"""Most elements of a sequence that are known at import; an insertion copies all."""


@converter("SequenceConstruct")
def construct(node: Node) -> Converted:
    items = tuple(node.any_value(i) for i in range(len(node)))
    return ListValue(node.outputs[0], common_kind(items, "the elements"), items)


@converter("SequenceEmpty")
def empty(node: Node) -> Converted:
    code = node.attr.int("dtype", 1)
    name = STRING if code == STRING_CODE else onnx_dtype(code, "attribute 'dtype'").dtype.name
    return ListValue(node.outputs[0], Kind(name), ())


@converter("SequenceInsert")
def insert(node: Node) -> Converted:
    sequence, item = node.sequence(0), node.any_value(1)
    element = join(_element(sequence), item.kind)
    if element is None:
        raise NodeError(f"input 'tensor' is {item}, but input 'input_sequence' is {sequence}")
    if isinstance(sequence, ListValue) and len(sequence.items) < MAX_ITEMS and _is_known(node, 2):
        count = len(sequence.items)
        at = _position(node, 2, count, count) if node.has(2) else count
        kind = item.kind if not sequence.items else element
        return ListValue(node.outputs[0], kind, (*sequence.items[:at], item, *sequence.items[at:]))
    operands = [node.object(i) for i in range(len(node))]
    return node.host("mirlo.sequence.insert", *operands, results=[sequence_of(element)])


@converter("SequenceErase")
def erase(node: Node) -> Converted:
    sequence = node.sequence(0)
    if not isinstance(sequence, ListValue) or not _is_known(node, 1):
        operands = [node.object(i) for i in range(len(node))]
        return node.host("mirlo.sequence.erase", *operands, results=[sequence.kind])
    count = len(sequence.items)
    at = _position(node, 1, count, count - 1) if node.has(1) else count - 1
    if at < 0:
        raise NodeError("input 'input_sequence' is empty: there is nothing to erase")
    return ListValue(node.outputs[0], sequence.element, (*sequence.items[:at], *sequence.items[at + 1 :]))


@converter("SequenceAt")
def at(node: Node) -> Converted:
    sequence = node.sequence(0)
    if isinstance(sequence, ListValue) and _is_known(node, 1):
        return sequence.items[_position(node, 1, len(sequence.items), len(sequence.items) - 1)]
    return node.host("mirlo.sequence.at", node.object(0), node.object(1), results=[_declared(node, _element(sequence))])


@converter("SequenceLength")
def length(node: Node) -> Converted:
    sequence = node.sequence(0)
    if isinstance(sequence, ListValue):
        return node.constant(len(sequence.items), "i64")
    return node.host("mirlo.sequence.length", node.object(0), results=[Kind("i64", ())])


def _element(sequence: AnyValue) -> Kind:
    assert sequence.kind.element is not None
    return sequence.kind.element


def _is_known(node: Node, index: int) -> bool:
    """Return whether an input is constant or absent."""
    return not node.has(index) or node.value(index).array is not None


def _declared(node: Node, kind: Kind) -> Kind:
    """Return the kind of a tensor with the declared shape of the output, if nothing else is known."""
    shape = node.declared(0)
    return Kind(kind.name, shape) if kind.element is None and kind.shape is None and shape is not None else kind


def _position(node: Node, index: int, count: int, most: int) -> int:
    """Return a constant position; negative ones count from the end."""
    position = int(node.scalar(index))
    if not -count <= position <= most:
        raise NodeError(f"input 'position' is {position}, outside a sequence of {count}")
    return position + count if position < 0 else position


@converter("SplitToSequence")
def split_to_sequence(node: Node) -> Converted:
    axis, keepdims = node.attr.int("axis", 0), node.attr.bool("keepdims", 1)
    value = node.any_value(0)
    if not isinstance(value, Tensor) or not _is_known(node, 1):
        return _split_at_run_time(node, value, axis, keepdims)
    x = node.type(0)
    _require_axis(axis, x.rank)
    sizes = _split_sizes(node, x.shape[axis])
    pieces = [node[0]] if len(sizes) <= 1 else node[0].split(sizes, axis)
    if not node.has(1) and not keepdims:
        pieces = [piece.squeeze(axis) for piece in pieces]
    for i, piece in enumerate(pieces):
        piece.name = f"{node.outputs[0]}[{i}]"
    items = tuple(pieces)
    return ListValue(node.outputs[0], common_kind(items, "the pieces") if items else Kind(x.dtype.name), items)


def _require_axis(axis: int, rank: int) -> None:
    if not -rank <= axis < rank:
        raise NodeError(f"attribute 'axis' is {axis}, outside a tensor of rank {rank}")


def _split_at_run_time(node: Node, sequence: AnyValue, axis: int, keepdims: bool) -> Converted:
    shape = sequence.kind.shape
    element = Kind(sequence.kind.name)
    if shape is not None:
        _require_axis(axis, len(shape))
        if not node.has(1):
            one = [1] if keepdims else []
            axis %= len(shape)
            element = Kind(sequence.kind.name, (*shape[:axis], *one, *shape[axis + 1 :]))
    kind = sequence_of(element)
    return node.host(
        "mirlo.sequence.split",
        node.object(0),
        *([node.object(1)] if node.has(1) else []),
        results=[kind],
        axis=axis,
        keepdims=keepdims,
    )


def _split_sizes(node: Node, size: Dim) -> tuple[Dim, ...]:
    """Return the sizes of the pieces: as given, all of one given size, or of size one."""
    if node.has(1) and node.type(1).rank == 1:
        return node.dims(1)
    piece = int(node.scalar(1, 1))
    if not isinstance(size, int) or piece < 1:
        raise NodeError(f"a dim of {size} cannot be split into parts of {piece}: fix it with shapes=")
    if size // piece > MAX_ITEMS:
        raise NodeError(f"a dim of {size} in parts of {piece} has more than {MAX_ITEMS} parts, which is not supported")
    return (piece,) * (size // piece) + ((size % piece,) if size % piece else ())


@converter("ConcatFromSequence")
def concat_from_sequence(node: Node) -> Converted:
    sequence, axis, new_axis = node.sequence(0), node.attr.int("axis"), node.attr.bool("new_axis", 0)
    items = sequence.items if isinstance(sequence, ListValue) else []
    tensors = [item for item in items if isinstance(item, Tensor)]
    if isinstance(sequence, ListValue) and len(tensors) == len(items):
        if not tensors:
            raise NodeError("input 'input_sequence' is empty: the shape of the result is not known")
        return stack(tensors, axis) if new_axis else concat(tensors, axis)
    kind = _declared(node, Kind(_element(sequence).name))
    return node.host("mirlo.sequence.concat", node.object(0), results=[kind], axis=axis, new_axis=new_axis)


# Optional values. Each other value counts as one that is present.


@converter("Optional")
def optional(node: Node) -> Converted:
    if node.has(0):
        node.attr.ignore("type")
        return OptionalValue(node.outputs[0], node.any_value(0).kind, node.any_value(0))
    return OptionalValue(node.outputs[0], kind_of(node.attr.type("type"), "attribute 'type'"), None)


@converter("OptionalHasElement")
def has_element(node: Node) -> Converted:
    value = node.any_value(0) if node.has(0) else None
    if isinstance(value, ObjectValue) and value.kind.name == OPTIONAL:
        return node.host("mirlo.sequence.has_element", node.object(0), results=[Kind("bool", ())])
    is_there = value is not None and not (isinstance(value, OptionalValue) and value.value is None)
    return node.constant(is_there, "bool")


@converter("OptionalGetElement")
def get_element(node: Node) -> Converted:
    element = node.any_value(0)
    if isinstance(element, OptionalValue):
        if element.value is None:
            raise NodeError("the optional value is always empty: it has no element to get")
        return element.value
    if element.kind.name != OPTIONAL:
        return element
    return node.host("mirlo.sequence.element", node.object(0), results=[_declared(node, _element(element))])
