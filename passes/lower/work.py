"""An estimate of the work of kernels and loops, in floating-point operations, for the decision to use threads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import dims_of_attribute
from mirlo.dialects.core.value import element_of, integer_of
from mirlo.dialects.tir.buffers import UNBOUNDED, buffer_bytes, element_bytes
from mirlo.dialects.tir.sizes import SizeEmitter, symbols_of_function
from mirlo.passes.fuse.kinds import KIND, FusionKind
from mirlo.passes.schedule.schedule import FLOPS, READS

LARGE = 1 << 60
OPERATIONS_PER_BYTE = 4
"""Cost of accessing a byte, in floating-point operations."""
_FREE = ("arith.constant", "arith.index_cast", "affine.apply", "memref.cast", "memref.alloca", "scf.yield")
_READS = ("memref.load", "vector.load", "vector.maskedload", "vector.transfer_read", "vector.gather")
_WRITES = ("memref.store", "vector.store", "vector.maskedstore", "vector.transfer_write", "vector.scatter")
_COMPUTES = ("arith.", "math.", "vector.")


def static_flops(function: ir.Operation) -> int | None:
    """Return the floating-point operations of a kernel; None if they depend on run-time sizes."""
    attributes = function.operation.attributes
    if FLOPS not in attributes:
        return 0
    flops = attributes[FLOPS]
    return flops.value if isinstance(flops, ir.IntegerAttr) else None


def emit_flops(function: ir.Operation) -> ir.Value | None:
    """Emit the number of operations of a contraction that depends on run-time sizes; None for memory-bound kernels."""
    is_contraction = KIND in function.attributes and function.attributes[KIND].value == FusionKind.CONTRACTION.label
    flops = D.parse(function.attributes[FLOPS].value) if is_contraction and static_flops(function) is None else 0
    names = [str(dim) for dim in symbols_of_function(function.opview)]
    if isinstance(flops, int) or not set(D.symbols_of(flops)) <= set(names):
        return None
    arguments = list(function.regions[0].blocks[0].arguments)
    return SizeEmitter(dict(zip(names, arguments[-len(names) :], strict=True))).emit(flops)


def moved_bytes(function: ir.Operation, kinds: Sequence[ir.Type], unknown: int | None = None) -> int:
    """Return the bytes of buffers of these types that a call of a kernel reads and writes.

    Of an argument that is read in part, only that part counts. If that part depends on run-time sizes, `unknown`
    elements count, by default all. Buffers of run-time sizes count nothing.
    """
    reads = list(dims_of_attribute(function.attributes[READS])) if READS in function.attributes else []
    total = 0
    for kind, elements in zip_longest(kinds, reads[: len(kinds)]):
        if not isinstance(kind, ir.MemRefType) or not kind.has_static_shape or list(kind.shape) == [UNBOUNDED]:
            continue
        if elements is not None and not isinstance(elements, int):
            elements = unknown
        whole = buffer_bytes(kind)
        total += whole if elements is None else min(whole, elements * element_bytes(kind.element_type))
    return total


def kernel_work(function: ir.Operation | ir.OpView) -> int:
    """Return the work of a kernel, `LARGE` if it depends on run-time sizes."""
    flops = static_flops(function.operation)
    if flops is None:
        return LARGE
    types = [a.type for a in function.operation.regions[0].blocks[0].arguments]
    return flops + OPERATIONS_PER_BYTE * moved_bytes(function.operation, types)


def body_work(block: ir.Block) -> int | None:
    """Return the work of a loop's body; None if it depends on run-time sizes or is not known."""
    total = 0
    for view in block.operations:
        work = _operation_work(view.operation)
        if work is None:
            return None
        total += work
    return total


def _operation_work(op: ir.Operation) -> int | None:
    if op.name in _FREE:
        return 0
    if op.name in _READS:
        return OPERATIONS_PER_BYTE * _bytes(op.results[0].type)
    if op.name in _WRITES:
        return OPERATIONS_PER_BYTE * max(_bytes(operand.type) for operand in op.operands)
    if op.name in ("scf.for", "scf.if"):
        inside = [body_work(region.blocks[0]) for region in op.regions if len(region.blocks)]
        trips = constant_trips(op) if op.name == "scf.for" else 1
        known = [work for work in inside if work is not None]
        return None if trips is None or len(known) < len(inside) else trips * max(known, default=0)
    if op.name.startswith(_COMPUTES) and not len(op.regions):
        return max((_elements(result.type) for result in op.results), default=0)
    return None


def _bytes(kind: ir.Type) -> int:
    if isinstance(kind, (ir.MemRefType, ir.IndexType)):
        return 0
    return _count(kind) * element_bytes(element_of(kind))


def _elements(kind: ir.Type) -> int:
    """Return the numbers that an operation computes; those of addresses are free."""
    return 0 if isinstance(element_of(kind), ir.IndexType) else _count(kind)


def _count(kind: ir.Type) -> int:
    return prod(kind.shape) if isinstance(kind, ir.VectorType) else 1


def constant_trips(loop: ir.Operation | ir.OpView) -> int | None:
    """Return the iterations of a loop with constant bounds, None of others."""
    low, high, step = (integer_of(value) for value in list(loop.operands)[:3])
    return None if low is None or high is None or step is None else len(range(low, high, step))
