"""Conversion between constants of the graph and numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import dense_attribute, read_dense
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.create import Constant
from mirlo.passes.graph.unknown import (
    Answer,
    ConstantSource,
    Contents,
    DeferredElements,
    DerivedConstant,
    note_unknown,
    unknown_constants,
)
from mirlo.runtime.container import empty_aligned, release
from mirlo.runtime.dtypes import element_type_of

if TYPE_CHECKING:
    from mirlo.passes.session import Session
    from mirlo.runtime.params import ColumnReader

INLINE_ELEMENTS = 16
"""Most elements of a constant in the IR; larger ones are parameters."""
_MIN_DEFERRED_BYTES = 1 << 16
"""Fewest bytes of a constant whose transposition is deferred until its elements are needed."""


def is_constant(value: ir.Value) -> bool:
    """Return whether a value is a `relax.constant`."""
    return isinstance(value, ir.OpResult) and value.owner.name == "relax.constant"


def constant_value(value: ir.Value, session: Session) -> np.ndarray | None:
    """Return the array of a value that is a constant, else None."""
    if not is_constant(value):
        return None
    op = value.owner.opview
    if op.param is not None:
        if op.param in session.params:
            return session.params.get(op.param)
        note_unknown(op.param, session)
        return None
    return read_dense(op.value, _kind(value))


def is_available(value: ir.Value, session: Session) -> bool:
    """Return whether a value is a constant whose array is available."""
    if not is_constant(value):
        return False
    name = value.owner.opview.param
    if name is None or name in session.params:
        return True
    note_unknown(name, session)
    return False


def is_derivable(value: ir.Value, session: Session) -> bool:
    """Return whether a value is a constant that others can be computed from, perhaps once its elements are known."""
    unknown = unknown_constants(session)
    is_unknown = unknown is not None and is_constant(value) and value.owner.opview.param in unknown
    return is_unknown or is_available(value, session)


def contents_of(value: ir.Value) -> Contents:
    """Return the name of the parameter, or the elements, of a constant."""
    op = value.owner.opview
    contents: Contents = op.value if op.param is None else op.param
    return contents


def source_of(value: ir.Value, session: Session) -> ConstantSource:
    """Return how the elements of an available constant are read, even if it is discarded later."""
    return ConstantSource(constant_reader(value, session), slice_reader(value, session))


def decide(question: Callable[[ConstantSource], Answer], key: Hashable, value: ir.Value, session: Session) -> Answer:
    """Return the answer to a question about the elements of a constant that is derivable, for each layer it stands for.

    `key` is equal for equal questions.
    """
    unknown, contents = unknown_constants(session), contents_of(value)
    if unknown is None or not isinstance(contents, str) or contents not in unknown:
        return question(source_of(value, session))
    return unknown.decide(question, key, contents, _kind(value), session.params)


def emit_derived_constant(
    elements: Callable[[Sequence[ConstantSource]], DeferredElements | None],
    key: Hashable,
    operands: Sequence[ir.Value],
    kind: TensorType,
    session: Session,
    name: str,
) -> ir.Value | None:
    """Emit a constant that is computed from others when it is needed; return None where numpy does not define it.

    `key` is equal for constants that are computed in the same way; `name` is the operator. The first operand of the
    most elements gives its name to the parameter.
    """
    unknown, contents = unknown_constants(session), tuple(map(contents_of, operands))
    kinds = tuple(_kind(operand) for operand in operands)
    if unknown is not None and any(isinstance(each, str) and each in unknown for each in contents):
        return unknown.derive(DerivedConstant(elements, key, contents, kinds, name), kind)
    deferred = elements([source_of(operand, session) for operand in operands])
    if deferred is None:
        return None
    largest = max(operands, key=lambda operand: _kind(operand).elements)
    base = f"{constant_name(largest)}.{name}"
    return emit_deferred_constant(deferred.make, kind, session, base, fill=deferred.fill)


def _kind(value: ir.Value) -> TensorType:
    kind = TensorType.from_mlir(value.type)
    assert kind is not None  # constants are tensors
    return kind


def row_source(value: ir.Value) -> ir.OpView | None:
    """Return the `relax.view_row` of a constant that a value is, else None."""
    is_row = (
        isinstance(value, ir.OpResult) and value.owner.name == "relax.view_row" and is_constant(value.owner.operands[0])
    )
    return value.owner.opview if is_row else None


def whole_constant(value: ir.Value) -> ir.Value:
    """Return the constant of which a value is a slice at a position, or the value itself."""
    row = row_source(value)
    return value if row is None else row.x


def constant_reader(value: ir.Value, session: Session) -> Callable[[], np.ndarray]:
    """Return a reader of the array of an available constant, in any layout, valid even if it is discarded later."""
    name = value.owner.opview.param
    if name is not None:
        reader: Callable[[], np.ndarray] = session.params.reader(name)
        return reader
    array = constant_value(value, session)
    assert array is not None
    return lambda: array


def slice_reader(value: ir.Value, session: Session) -> Callable[[int], np.ndarray]:
    """Return a reader of the slices of an available constant along its first dim, in any layout."""
    name = value.owner.opview.param
    if name is not None:
        reader: Callable[[int], np.ndarray] = session.params.slices(name)
        return reader
    array = constant_value(value, session)
    assert array is not None
    return array.__getitem__


def derived(read: Callable[[], np.ndarray], change: Callable[[np.ndarray], np.ndarray]) -> Callable[[], np.ndarray]:
    """Return a function that computes an array from another, and releases the mapped pages of its file."""

    def make() -> np.ndarray:
        source = read()
        result = change(source)
        if not np.may_share_memory(source, result):
            release(source)
        return result

    return make


def column_reader(value: ir.Value, session: Session) -> ColumnReader | None:
    """Return a reader of the columns of an available constant that computes them in turn; None if they are there."""
    name = value.owner.opview.param
    reader: ColumnReader | None = None if name is None else session.params.column_reader(name)
    return reader


def derived_columns(read: Callable[[], np.ndarray], change: Callable[[np.ndarray], np.ndarray]) -> ColumnReader:
    """Return the same as `derived` for a change of each column alone, column by column."""

    def columns(width: int) -> Iterator[np.ndarray]:
        source = read()
        for start in range(0, source.shape[-1], width):
            yield change(source[..., start : start + width])
        release(source)

    return columns


def filled(
    read: Callable[[], np.ndarray], fill: Callable[[np.ndarray, np.ndarray], None]
) -> Callable[[np.ndarray], None]:
    """Return the same as `derived`, for a function that writes to an array."""

    def write(to: np.ndarray) -> None:
        source = read()
        fill(source, to)
        release(source)

    return write


def stacked(
    read: Callable[[int], np.ndarray], fill: Callable[[np.ndarray, np.ndarray], None], kind: TensorType
) -> tuple[Callable[[], np.ndarray], Callable[[np.ndarray], None]]:
    """Return what makes a constant of a type, and what writes it, whose slices are computed from those of another."""

    def write(to: np.ndarray) -> None:
        for position, target in enumerate(to):
            source = read(position)
            fill(source, target)
            release(source)

    def make() -> np.ndarray:
        # Aligned to cache lines: a vector across two lines takes two loads.
        result = empty_aligned(kind.dtype.to_numpy(), kind.static_shape)
        write(result)
        return result

    return make, write


def emit_deferred_constant(
    make: Callable[[], np.ndarray],
    kind: TensorType,
    session: Session,
    name: str,
    loose: np.ndarray | None = None,
    fill: Callable[[np.ndarray], None] | None = None,
    columns: ColumnReader | None = None,
) -> ir.Value:
    """Emit a constant whose array is computed while kernels are compiled, or on first use; see `add_deferred`."""
    element = element_type_of(kind.dtype.to_numpy())
    assert element is not None
    param = session.params.add_deferred(name, element.name, kind.static_shape, make, loose, fill, columns)
    result: ir.Value = Constant.make(param=param, result_types=[kind])
    return result


def emit_constant(array: np.ndarray, kind: TensorType, session: Session, name: str) -> ir.Value:
    """Emit a constant at the insertion point: in the IR if it is small, else a parameter of (about) this name."""
    if array.nbytes >= _MIN_DEFERRED_BYTES and array.shape == kind.static_shape and _is_transposed(array):
        return emit_deferred_constant(lambda: array, kind, session, name, array)
    array = np.ascontiguousarray(array).reshape(kind.static_shape)
    if array.size <= INLINE_ELEMENTS:
        result: ir.Value = Constant.make(value=dense_attribute(array, kind), result_types=[kind])
        return result
    stored: ir.Value = Constant.make(param=session.params.add_unique(name, array), result_types=[kind])
    return stored


def _is_transposed(array: np.ndarray) -> bool:
    """Return whether the elements are contiguous in an order other than row-major."""
    span = sum((dim - 1) * stride for dim, stride in zip(array.shape, array.strides, strict=True)) + array.itemsize
    return not array.flags.c_contiguous and span == array.nbytes and min(array.strides) > 0


def constant_name(value: ir.Value) -> str:
    """Return the parameter name of a constant, for naming values computed from it."""
    op = value.owner.opview
    return op.param if op.param is not None else "constant"
