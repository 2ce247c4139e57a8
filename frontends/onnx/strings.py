"""Data-moving operators on string tensors: compiled code moves indices of the strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import read_dense
from mirlo.dialects.core.surgery import erase_op, is_dead
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.create import Constant
from mirlo.dialects.relax.index import Gather
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, NodeImporter, NodeTrait
from mirlo.frontends.onnx.objects import call_host
from mirlo.frontends.onnx.values import AnyValue, ObjectValue, selected_strings, strings, tensor_kind
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.kinds import STRING, Kind
from mirlo.runtime.names import terminal
from mirlo.runtime.records import dataclass

RESHAPE, GATHER = "mirlo.string.reshape", "mirlo.string.gather"
Shape = tuple[int | str, ...]
Convert = Callable[[list["AnyValue | None"]], Sequence["AnyValue | None"]]


def moved(node: Node, convert: Convert) -> list[AnyValue | None]:
    """Return the outputs of a node that moves or measures strings; `convert` makes those of the node on indices."""
    inputs, body = node.inputs, node.builder
    reduction = node.attr.str("reduction", "none")
    if reduction != "none":
        raise NodeError(f"attribute 'reduction' must be 'none' for strings, got '{terminal(reduction)}'")
    texts = [value for value in inputs if value is not None and value.kind.name == STRING]
    table = _Table.of(texts)
    indices = _string_indices(texts, body) if table is None else table.indices(body)
    index_values = iter(indices)
    results = convert([next(index_values) if value in texts else value for value in inputs])
    if NodeTrait.MEASURES in node.traits:
        return list(results)
    if table is not None:
        return [None if value is None else table.select(value) for value in results]
    if len(texts) == len(results) == 1 and (selected := _selected(texts[0], indices[0], results[0], body)) is not None:
        return [selected]
    pool = call_host(body, "mirlo.string.pool", list(map(body.ssa, texts)), [Kind(STRING)])[0]
    return [None if value is None else _select_strings(body.ssa(pool), value, body) for value in results]


@dataclass(frozen=True)
class _Table:
    """The strings of tables at import, one after the other, from which tensors of strings are selected."""

    tables: Sequence[np.ndarray]
    texts: Sequence[tuple[ObjectValue, tuple[int, ...], int]]
    """The tensors, the shape of each one's strings and where these begin in the table."""

    @classmethod
    def of(cls, texts: Sequence[AnyValue]) -> _Table | None:
        """Return the table of these tensors; None if the strings of one are known at run time only."""
        tables: dict[int, np.ndarray] = {}
        starts: dict[int, int] = {}
        count = 0
        placed = []
        for text in texts:
            if not isinstance(text, ObjectValue) or text.strings is None:
                return None
            key = id(text.strings)
            if key not in tables:
                tables[key], starts[key] = text.strings.reshape(-1), count
                count += text.strings.size
            placed.append((text, text.strings.shape, starts[key]))
        return cls(list(tables.values()), placed)

    def indices(self, body: NodeImporter) -> list[AnyValue]:
        """Return the positions in the table of the strings of each tensor."""
        indices: list[AnyValue] = []
        for text, shape, start in self.texts:
            if text.places is None:
                indices.append(body.constant(np.arange(start, start + prod(shape)).reshape(shape)))
            else:
                indices.append(text.places + start if start else text.places)
        return indices

    def select(self, places: AnyValue) -> AnyValue:
        """Return the strings at these positions, constants where the positions are."""
        assert isinstance(places, Tensor)
        words = np.concatenate(self.tables) if len(self.tables) > 1 else self.tables[0]
        if places.array is not None:
            return strings("", words[np.broadcast_to(places.array, places.type.static_shape)])
        return selected_strings(words, places)


def _string_indices(texts: Sequence[AnyValue], body: NodeImporter) -> Sequence[AnyValue]:
    """Return indices for the strings of some tensors, in the order of the pool."""
    shapes = [value.kind.shape for value in texts]
    if all(shape is not None and all(isinstance(dim, int) for dim in shape) for shape in shapes):
        indices, start = [], 0
        for shape in shapes:
            count = prod(int(dim) for dim in shape or ())
            indices.append(body.constant(np.arange(start, start + count).reshape(shape or ())))
            start += count
        return indices
    if any(shape is None for shape in shapes):
        raise NodeError("the rank of a tensor of strings must be known, but it depends on data")
    return call_host(body, "mirlo.string.places", list(map(body.ssa, texts)), [Kind("i64", shape) for shape in shapes])


def _select_strings(pool: ir.Value, places: AnyValue, body: NodeImporter) -> AnyValue:
    assert isinstance(places, Tensor)
    return call_host(body, "mirlo.string.take", [pool, body.ssa(places)], [Kind(STRING, places.kind.shape)])[0]


def _selected(text: AnyValue, places: AnyValue, result: AnyValue | None, body: NodeImporter) -> AnyValue | None:
    """Return strings that are selected along one axis at constant positions, or that only change their shape.

    The host selects them itself, without indices of all. Return None for other movements, and for shapes that only
    compiled code knows.
    """
    if not isinstance(places, Tensor) or not isinstance(result, Tensor) or result.made is None:
        return None
    path: list[ir.OpView] = []
    value = result.made
    while value != places.made:
        if isinstance(value.owner, ir.Block):
            return None
        path.append(value.owner.opview)
        value = value.owner.operands[0]
    calls = _calls(places.type, path[::-1])
    if calls is None:
        return None
    for op in (*path, body.ssa(places).owner.opview):
        if is_dead(op):
            erase_op(op)
    for function, options, shape in calls:
        text = call_host(body, function, [body.ssa(text)], [Kind(STRING, shape)], **options)[0]
    return text


def _calls(type_: TensorType, path: Sequence[ir.OpView]) -> list[tuple[str, dict[str, object], Shape]] | None:
    """Return the host functions that move strings of this type as operators on their indices do, with their options."""
    calls: list[tuple[str, dict[str, object], Shape]] = []
    for op in path:
        result = _type_of(op.operation.results[0])
        shape = tensor_kind(result).shape
        template = _template(result)
        if template is None or shape is None:
            return None
        if Trait.VIEW in traits_of(op):
            if calls and calls[-1][0] == RESHAPE:
                calls.pop()
            calls.append((RESHAPE, {"shape": template}, shape))
        else:
            indices = _positions(op, type_)
            if indices is None:
                return None
            axis = op.axis % type_.rank
            calls.append((GATHER, {"axis": axis, "indices": indices, "shape": template}, shape))
        type_ = result
    return calls


def _type_of(value: ir.Value) -> TensorType:
    """Return the type of an SSA value."""
    result = TensorType.from_mlir(value.type)
    assert result is not None
    return result


def _template(type_: TensorType) -> list[int] | None:
    """Return a shape in which the only unknown dim is -1; None if more dims are unknown, or if it is ambiguous."""
    template = [dim if isinstance(dim, int) else -1 for dim in type_.shape]
    return None if template.count(-1) > 1 or 0 in template else template


def _positions(op: ir.OpView, type_: TensorType) -> list[int] | None:
    """Return the constant positions along an axis of known size that a Gather selects."""
    if op.operation.name != Gather.OPERATION_NAME:
        return None
    size, value = type_.shape[op.axis], op.operation.operands[1]
    while not isinstance(value.owner, ir.Block) and Trait.VIEW in traits_of(value.owner.opview):
        value = value.owner.operands[0]
    if isinstance(value.owner, ir.Block) or value.owner.name != Constant.OPERATION_NAME or not isinstance(size, int):
        return None
    attribute = value.owner.opview.value
    if attribute is None:
        return None
    positions = read_dense(attribute, _type_of(value)).reshape(-1)
    if positions.size == 0 or (positions < -size).any() or (positions >= size).any():
        return None
    return [int(position) for position in positions % size]
