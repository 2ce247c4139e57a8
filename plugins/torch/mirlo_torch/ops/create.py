"""Creation of tensors, conversion of element types, copies."""

from __future__ import annotations

import numpy as np

from mirlo.extend.frontend import Dim, Tensor, TensorType, UnsupportedOperation, maximum, where
from mirlo_torch.operation import AtenOperation, Operand
from mirlo_torch.registry import converter

MAX_TABLE = 1 << 16
"""Most elements of a range that is computed at import."""


@converter(
    "aten.alias.default", "aten.clone.default", "aten.contiguous.default", "aten.detach.default",
    "aten.lift_fresh_copy.default", "aten.lift_fresh.default", "aten.detach_.default",
    "aten.detach_copy.default", "aten.resolve_conj.default", "aten.resolve_neg.default", "aten.conj.default",
    "aten._conj.default", "aten.conj_physical.default", "aten._conj_physical.default",
)  # fmt: skip
def identity(op: AtenOperation, x: Tensor, *_: object, **ignored: object) -> Tensor:
    """Convert operators that change only how a tensor is stored, or nothing at all."""
    return x


@converter(
    "aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.type_as.default",
    "aten.to.other", "aten.to.prim_Device", "prims.convert_element_type.default",
)  # fmt: skip
def to_copy(op: AtenOperation, x: Tensor, *_: object, **ignored: object) -> Tensor:
    return x.cast(op.dtype)


@converter("aten.copy.default")
def copy(op: AtenOperation, x: Tensor, source: Tensor, *_: object) -> Tensor:
    return source.cast(op.dtype).expand(op.shape)


@converter("aten.view.dtype")
def view_dtype(op: AtenOperation, x: Tensor, _: object) -> Tensor:
    if x.dtype.bits != op.dtype.bits or x.dtype.is_bool or op.dtype.is_bool:
        raise UnsupportedOperation(f"reinterprets {x.dtype} as {op.dtype}: sizes must be equal")
    return x.bitcast(op.dtype)


def _filled(op: AtenOperation, value: Operand) -> Tensor:
    return op.operand(value, op.dtype).expand(op.shape)


@converter("aten.full.default", "aten.full_like.default")
def full(op: AtenOperation, _: object, value: Operand, **ignored: object) -> Tensor:
    return _filled(op, value)


@converter("aten.new_full.default")
def new_full(op: AtenOperation, _: Tensor, size: object, value: Operand, **ignored: object) -> Tensor:
    return _filled(op, value)


@converter("aten.fill.Scalar", "aten.fill.Tensor")
def fill(op: AtenOperation, _: Tensor, value: Operand) -> Tensor:
    return _filled(op, value)


@converter("aten.scalar_tensor.default")
def scalar_tensor(op: AtenOperation, value: Operand, **ignored: object) -> Tensor:
    return _filled(op, value)


@converter("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero.default")
def zeros(op: AtenOperation, *_: object, **ignored: object) -> Tensor:
    return _filled(op, 0)


@converter("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(op: AtenOperation, *_: object, **ignored: object) -> Tensor:
    return _filled(op, 1)


@converter(
    "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default", "aten.empty_strided.default",
    "aten.empty_permuted.default", "aten.new_empty_strided.default",
)  # fmt: skip
def empty(op: AtenOperation, *_: object, **ignored: object) -> Tensor:
    """Convert tensors whose elements are not defined: zeros."""
    return _filled(op, 0)


@converter("aten.arange.default")
def arange_to(op: AtenOperation, end: Dim, **ignored: object) -> Tensor:
    return _range(op, 0, 1)


@converter("aten.arange.start")
def arange_from(op: AtenOperation, start: Dim, end: Dim, **ignored: object) -> Tensor:
    return _range(op, start, 1)


@converter("aten.arange.start_step")
def arange(op: AtenOperation, start: Dim, end: Dim, step: float = 1, **ignored: object) -> Tensor:
    return _range(op, start, step)


def _range(op: AtenOperation, start: Dim, step: float) -> Tensor:
    """Return start + i * step, computed in f64 or i64, as PyTorch does."""
    tensor_type = TensorType(op.shape, op.dtype)
    (size,) = tensor_type.shape
    number = start if isinstance(start, (int, float)) and isinstance(step, (int, float)) else None
    if isinstance(size, int) and size <= MAX_TABLE and number is not None:
        kind = float if tensor_type.dtype.is_float else int
        array = kind(number) + np.arange(size) * kind(step)
        return op.constant(array, tensor_type.dtype, tensor_type.shape)
    wide = "f64" if tensor_type.dtype.is_float else "i64"
    at = op.positions(TensorType.of((size,), "i64"), 0)
    result = at.cast(wide) * op.operand(step, wide) + op.operand(start, wide)
    return result.cast(tensor_type.dtype)


@converter(
    "aten.linspace.default", "aten.linspace.Tensor_Tensor", "aten.linspace.Tensor_Scalar", "aten.linspace.Scalar_Tensor"
)
def linspace(op: AtenOperation, start: Operand, end: Operand, count: Dim, **ignored: object) -> Tensor:
    """Convert `linspace` as PyTorch computes it: each half from its own end, integer ends truncated."""
    kind, shape = op.dtype, op.shape
    wide = "f64" if not kind.is_float or kind.bits == 64 else "f32"
    ends = (op.operand(each, "i64" if kind.is_integer else wide).cast(wide) for each in (start, end))
    first, last = (each.reshape(()) for each in ends)
    at = op.positions(TensorType(shape, TensorType.of((), "i64").dtype), 0)
    rest = op.operand(count, "i64") - 1
    step = (last - first) / maximum(rest, 1).cast(wide)
    result = where(at < (rest + 1) // 2, first + at.cast(wide) * step, last - (rest - at).cast(wide) * step, step.dtype)
    return (result if count != 1 else first.expand(shape)).cast(kind)


@converter("aten.eye.default", "aten.eye.m")
def eye(op: AtenOperation, *_: object, **ignored: object) -> Tensor:
    return op.emit("eye", shape=op.shape, dtype=op.dtype)


@converter("aten.tril.default", "aten.triu.default")
def tri(op: AtenOperation, x: Tensor, diagonal: int = 0) -> Tensor:
    upper = "triu" in op.name
    if x.dtype.is_bool:
        number = x.cast("i8")
        return op.emit("tri", number, k=diagonal, upper=upper).cast("bool")
    return op.emit("tri", x, k=diagonal, upper=upper)


@converter("aten.tril_indices.default", "aten.triu_indices.default")
def tri_indices(op: AtenOperation, rows: int, cols: int, offset: int = 0, **ignored: object) -> Tensor:
    function = np.tril_indices if "tril" in op.name else np.triu_indices
    return op.constant(np.stack(function(rows, offset, cols)), op.dtype, op.shape)


@converter(
    "aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default", "aten.native_dropout.default"
)
def dropout(op: AtenOperation, x: Tensor, p: float, train: bool | None) -> Tensor | list[Tensor]:
    if train and p:
        raise UnsupportedOperation("drops elements, as in training: call eval() of its module")
    if "native" not in op.name:
        return x
    return [x, op.constant(True, TensorType.of((), "bool").dtype, x.shape)]


@converter("aten.sym_size.int", "aten.sym_numel.default")
def sym_size(op: AtenOperation, x: Tensor, axis: int | None = None) -> Dim:
    return x.type.elements if axis is None else x.shape[axis]
