"""Bodies of blocks emitted over vectors: one lane per element along one axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.surgery import attributes_of
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.core.value import index, is_constant
from mirlo.dialects.tir.buffers import UNBOUNDED
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.dialects.tir.sizes import buffer_indices
from mirlo.passes.schedule.loops import KnownBody, ScalarBody
from mirlo.runtime.records import dataclass

TRAPPING = tuple(
    f"arith.{name}" for name in ("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui")
)
"""Operations that trap if the divisor is zero, as it may be in an inactive lane."""


def may_trap(body: Sequence[ir.Operation]) -> bool:
    """Return whether the operations of a body may divide by zero in inactive lanes."""
    return any(op.name in TRAPPING and not is_constant(op.operands[1]) for op in body)


def is_vector(value: ir.Value) -> bool:
    return isinstance(value.type, ir.VectorType)


def elements_of(value: ir.Value) -> list[ir.Value]:
    """Return the elements of a vector; a scalar is one."""
    if not is_vector(value):
        return [value]
    kind = value.type.element_type
    owner = value.owner
    if not isinstance(owner, ir.Block) and owner.operation.name == "vector.from_elements":
        return list(owner.operation.operands)
    at = [ir.DenseI64ArrayAttr.get([lane]) for lane in range(value.type.shape[0])]
    return [create("vector.extract", kind, value, static_position=position) for position in at]


def splat(value: ir.Value, lanes: int) -> ir.Value:
    """Broadcast a scalar to all lanes; a vector is returned as it is."""
    if is_vector(value):
        return value
    return create("vector.broadcast", ir.VectorType.get([lanes], value.type), value)


def shuffle(a: ir.Value, b: ir.Value, pick: Sequence[int]) -> ir.Value:
    """Emit a shuffle: lanes of the concatenation of two vectors, in this order."""
    kind = ir.VectorType.get([len(pick)], a.type.element_type)
    return create("vector.shuffle", kind, a, b, mask=ir.DenseI64ArrayAttr.get(list(pick)))


def pick_lanes(value: ir.Value, lanes: Sequence[int]) -> ir.Value:
    """Return lanes of a vector, in this order; the vector itself if these are its own."""
    return value if list(lanes) == list(range(value.type.shape[0])) else shuffle(value, value, lanes)


def lane_indices(first: ir.Value, lanes: int) -> ir.Value:
    """Emit the index vector first, first + 1, ..."""
    index_vector = ir.VectorType.get([lanes], ir.IndexType.get())
    return create("arith.addi", index_vector, splat(first, lanes), create("vector.step", index_vector))


def flat(buffer: ir.Value) -> ir.Value:
    """Emit a one-dimensional view of a contiguous buffer."""
    kind = buffer.type
    if len(kind.shape) == 1:
        return buffer
    size = 1
    for dim in kind.shape:
        size *= dim
    result = ir.MemRefType.get([size], kind.element_type, memory_space=kind.memory_space)
    if not len(kind.shape):
        return memref.ExpandShapeOp(result, buffer, [], [], [1]).result
    return memref.CollapseShapeOp(result, buffer, [list(range(len(kind.shape)))]).result


def lane_mask(lanes: int, active: int) -> ir.Value:
    """Emit the mask whose first `active` lanes are on."""
    mask_type = ir.VectorType.get([lanes], ir.IntegerType.get_signless(1))
    if active >= lanes:
        on = ir.DenseElementsAttr.get_splat(mask_type, ir.BoolAttr.get(True))
        return create("arith.constant", mask_type, value=on)
    return create("vector.constant_mask", mask_type, mask_dim_sizes=ir.DenseI64ArrayAttr.get([active]))


def mask_of(lanes: Sequence[bool]) -> ir.Value:
    """Emit the mask in which these lanes are on."""
    count = sum(lanes)
    if all(lanes[:count]):
        return lane_mask(len(lanes), count)
    mask_type = ir.VectorType.get([len(lanes)], ir.IntegerType.get_signless(1))
    values = ir.DenseElementsAttr.get([ir.BoolAttr.get(on) for on in lanes], mask_type)
    return create("arith.constant", mask_type, value=values)


def gather(
    buffer: ir.Value, shape: Sequence[Dim], indices: Sequence[ir.Value], lanes: int, mask: ir.Value | None = None
) -> ir.Value:
    """Gather elements of a contiguous buffer at these indices, some of them vectors; inactive lanes read nothing.

    The shape is that of the tensor in the buffer, which bounds dims that the buffer's type does not.
    """
    kind = buffer.type
    if list(kind.shape) != [UNBOUNDED]:
        shape = kind.shape
    if not any(is_vector(i) for i in indices):
        return memref.LoadOp(buffer, buffer_indices(shape, indices)).result
    index_vector = ir.VectorType.get([lanes], ir.IndexType.get())
    linear: ir.Value | None = None
    stride: Dim = 1
    for position, dim in reversed(list(zip(indices, shape, strict=True))):
        scaled: ir.Value = position
        if stride != 1:
            factor = splat(index(stride), lanes) if is_vector(position) else index(stride)
            scaled = create("arith.muli", position.type, position, factor)
        if linear is None:
            linear = scaled
        elif is_vector(linear) or is_vector(scaled):
            linear = create("arith.addi", index_vector, splat(linear, lanes), splat(scaled, lanes))
        else:
            linear = create("arith.addi", ir.IndexType.get(), linear, scaled)
        stride = stride * dim
    assert linear is not None, "some index is a vector"
    result = ir.VectorType.get([lanes], kind.element_type)
    filler = splat(emit_constant(0, kind.element_type), lanes)
    enabled = lane_mask(lanes, lanes) if mask is None else mask
    return create("vector.gather", result, flat(buffer), index(0), linear, enabled, filler)


@dataclass(frozen=True)
class BodyOperation:
    """An operation of a body, of which everything is read once: each access of the bindings takes microseconds."""

    op: ir.Operation
    name: str
    operands: tuple[ir.Value, ...]
    results: tuple[ir.Value, ...]
    types: tuple[ir.Type, ...]
    attributes: Mapping[str, ir.Attribute]


@dataclass(frozen=True)
class VectorBody:
    """A block's body that is emitted several times while its block does not change."""

    operations: tuple[BodyOperation, ...]
    yielded: tuple[ir.Value, ...]
    selected: Mapping[ir.Value, ir.Value]


def read_body(block: ScalarBody) -> VectorBody:
    """Read a block's body, to emit it several times."""
    selected = block.selected if isinstance(block, KnownBody) else {}
    return VectorBody(tuple(map(_read_operation, block.body_ops)), tuple(block.yielded), selected)


def _read_operation(op: ir.Operation) -> BodyOperation:
    attributes, results = attributes_of(op), tuple(op.results)
    if op.name in EXTREMES:
        attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<nsz>")
    types = tuple(result.type for result in results)
    return BodyOperation(op, op.name, tuple(op.operands), results, types, attributes)


def vector_body(
    block: ScalarBody | VectorBody,
    values: Mapping[ir.Value, ir.Value],
    lanes: int,
    mask: ir.Value | None = None,
    extract: Callable[[ir.Operation, Mapping[ir.Value, ir.Value]], ir.Value] | None = None,
) -> list[ir.Value]:
    """Emit a block's body over scalars or vectors of `lanes` lanes; return the yielded values.

    An operation with a vector operand becomes a vector operation; values that are the same for all lanes stay
    scalar. Lanes that are off in `mask` read no memory. `extract` emits what the body reads by itself, from the
    values that are emitted.
    """
    body = block if isinstance(block, VectorBody) else read_body(block)
    env = dict(values)
    for op in body.operations:
        if body.selected and op.results[0] in body.selected:
            env[op.results[0]] = env[body.selected[op.results[0]]]
            continue
        operands = [env[v] for v in op.operands]
        if extract is not None and op.name == "tensor.extract":
            gathered: Iterable[ir.Value] = [extract(op.op, env)]
        elif op.name == "tensor.extract" and isinstance(operands[0].type, ir.MemRefType):
            gathered = [gather(operands[0], dims_of(op.operands[0].type), operands[1:], lanes, mask)]
        else:
            gathered = _vector_operation(op, operands, lanes)
        for old, new in zip(op.results, gathered, strict=True):
            env[old] = new
    return [env[v] for v in body.yielded]


EXTREMES = ("arith.maximumf", "arith.minimumf")
"""Operations for which the sign of a zero result is unspecified: to respect it costs two more operations."""


def _vector_operation(op: BodyOperation, operands: list[ir.Value], lanes: int) -> Iterable[ir.Value]:
    """Emit an operation of a body on these operands, over vectors if one of them is a vector."""
    types: Sequence[ir.Type] = op.types
    if any(map(is_vector, operands)):
        operands = [splat(v, lanes) for v in operands]
        types = [ir.VectorType.get([lanes], t) for t in types]
    results: Iterable[ir.Value] = ir.Operation.create(
        op.name, results=types, operands=operands, attributes=op.attributes
    ).results
    return results
