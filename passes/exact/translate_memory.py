"""Translations of `memref`, and of `tensor.extract` in bodies of blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translator import KernelTranslator, is_float_buffer, translates
from mirlo.passes.exact.values import INDEX_BITS, BufferRef, IntValue, Number, bits_of, row_major

ADDRESS = 3
"""Position of the constant of the round that stands for addresses: aligned in one round, and not in another."""
_PARTS = ("memref.subview", "memref.reinterpret_cast")
_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8}


def float_bytes(kind: ir.Type) -> int:
    """Return the bytes of a float in a kernel."""
    if str(kind) not in _BYTES:
        raise OutsideError(f"a view of bytes as {kind}")
    return _BYTES[str(kind)]


@translates("memref.load", "tensor.extract")
def load(t: KernelTranslator, op: ir.Operation) -> None:
    source, *indices = op.operands
    buffer = t.buffer(source)
    t.set(op, t.load(buffer, t.offset(buffer, [t.ints(i) for i in indices])))


@translates("memref.store")
def store(t: KernelTranslator, op: ir.Operation) -> None:
    value, target, *indices = op.operands
    buffer = t.buffer(target)
    t.store(t.number(value), buffer, t.offset(buffer, [t.ints(i) for i in indices]))


@translates("memref.copy")
def copy(t: KernelTranslator, op: ir.Operation) -> None:
    source, target = (t.buffer(value) for value in op.operands)
    if any(each.shift is not None or each.strides != row_major(each.shape) for each in (source, target)):
        raise OutsideError("a copy of a part of a buffer")
    _, size = t.element_text(source)
    count = IntValue(t.f.at_entry(f"udiv i64 {source.room}, {size}"), INDEX_BITS)

    def element(index: IntValue, carried: list[Number]) -> Sequence[Number]:
        t.store(t.load(source, index), target, index)
        return []

    t.loop(t.index(0), count, t.index(1), [], element)


@translates("memref.prefetch", "memref.dealloc")
def ignored(t: KernelTranslator, op: ir.Operation) -> None:
    """Translate an operation that has no effect on values to nothing."""


@translates("memref.assume_alignment", "memref.cast")
def same_buffer(t: KernelTranslator, op: ir.Operation) -> None:
    t.set(op, *[t.value(op.operands[0])][: len(op.results)])


@translates("memref.alloca", "memref.alloc")
def allocation(t: KernelTranslator, op: ir.Operation) -> None:
    if len(op.operands):
        raise OutsideError("a buffer of a size of run time on the stack")
    if op.results[0] not in t.values:  # memory that the threads of a launch share is known before
        t.set(op, t.local_buffer(op.results[0].type))


@translates("memref.collapse_shape", "memref.expand_shape")
def reshape(t: KernelTranslator, op: ir.Operation) -> None:
    buffer = t.buffer(op.operands[0])
    if buffer.strides != row_major(buffer.shape) or len(op.operands) > 1:
        raise OutsideError("a reshape of a buffer with strides")
    if op.name == "memref.expand_shape":
        shape = tuple(op.results[0].type.shape)
    else:
        groups = [
            [ir.IntegerAttr(i).value for i in ir.ArrayAttr(group)]
            for group in ir.ArrayAttr(op.attributes["reassociation"])
        ]
        sizes = [size for size in buffer.shape if isinstance(size, int)]
        if len(sizes) < len(buffer.shape):
            raise OutsideError("a reshape of a buffer of run-time sizes")
        shape = tuple(math.prod(sizes[i] for i in group) for group in groups)
    t.set(op, replace(buffer, shape=shape, strides=row_major(shape)))


@translates("memref.view")
def view_of_bytes(t: KernelTranslator, op: ir.Operation) -> None:
    source, by, *sizes = op.operands
    if sizes:
        raise OutsideError("a view of a run-time size")
    buffer, kind = t.buffer(source), op.results[0].type
    scaled = t.arith("mul", t.ints(by), t.index(t.view_ratio))
    shift = scaled if buffer.shift is None else t.arith("add", buffer.shift, scaled)
    shape = tuple(kind.shape)
    if is_float_buffer(kind):
        if t.view_ratio * float_bytes(kind.element_type) < t.arithmetic.bytes:
            raise OutsideError(f"a view of bytes as {kind.element_type}")
        t.set(op, BufferRef("f", 0, buffer.roots, buffer.room, shape, row_major(shape), shift))
    else:
        bits = bits_of(kind.element_type)
        t.set(op, BufferRef("i", bits, buffer.roots, buffer.room, shape, row_major(shape), shift))


@translates("memref.extract_aligned_pointer_as_index")
def address(t: KernelTranslator, op: ir.Operation) -> None:
    t.set(op, IntValue(t.f.round_constant(ADDRESS), 64))


@translates("memref.dim")
def dim(t: KernelTranslator, op: ir.Operation) -> None:
    buffer, axis = t.buffer(op.operands[0]), t.ints(op.operands[1])
    if axis.constant is None:
        raise OutsideError("a size of an axis of run time")
    known = buffer.shape[axis.constant]
    t.set(op, known if isinstance(known, IntValue) else t.index(known))


@translates("memref.reinterpret_cast")
def reinterpretation(t: KernelTranslator, op: ir.Operation) -> None:
    source, *rest = op.operands
    dynamic = [t.ints(value) for value in rest]
    (offset,) = _static_or(op, "static_offsets", dynamic)
    sizes, strides = _static_or(op, "static_sizes", dynamic), _static_or(op, "static_strides", dynamic)
    if not isinstance(source.owner, ir.Block) and source.owner.name in _PARTS:
        raise OutsideError("a reinterpretation of a part of a buffer")  # its offset counts from the whole buffer
    t.set(op, _moved(t, t.buffer(source), offset if isinstance(offset, IntValue) else t.index(offset), sizes, strides))


@translates("memref.subview")
def subview(t: KernelTranslator, op: ir.Operation) -> None:
    source, *rest = op.operands
    dynamic = [t.ints(value) for value in rest]
    offsets, sizes = _static_or(op, "static_offsets", dynamic), _static_or(op, "static_sizes", dynamic)
    steps = _static_or(op, "static_strides", dynamic)
    if any(step != 1 for step in steps) or len(op.results[0].type.shape) != len(sizes):
        raise OutsideError("a part of a buffer with steps, or with fewer dims")
    buffer = t.buffer(source)
    indices = [each if isinstance(each, IntValue) else t.index(each) for each in offsets]
    t.set(op, _moved(t, buffer, t.offset(buffer, indices), sizes, buffer.strides))


def _static_or(op: ir.Operation, attribute: str, dynamic: list[IntValue]) -> list[int | IntValue]:
    """Return numbers of an attribute, with the next dynamic ones where it has none."""
    unknown = ir.ShapedType.get_dynamic_size()
    numbers = ir.DenseI64ArrayAttr(op.attributes[attribute])
    stride = ir.ShapedType.get_dynamic_stride_or_offset()
    return [dynamic.pop(0) if n in (unknown, stride) else int(n) for n in numbers]


def _moved(
    t: KernelTranslator,
    buffer: BufferRef,
    offset: IntValue,
    sizes: Sequence[int | IntValue],
    strides: Sequence[int | IntValue | None],
) -> BufferRef:
    _, size = t.element_text(buffer)
    shift = t.arith("mul", offset, t.index(size))
    if buffer.shift is not None:
        shift = t.arith("add", shift, buffer.shift)
    return replace(buffer, shape=tuple(sizes), strides=tuple(strides), shift=shift)
