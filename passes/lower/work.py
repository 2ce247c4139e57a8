"""An estimate of the work of kernels and loops, in floating-point operations, for the decision to use threads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import dims_of_attribute
from mirlo.dialects.core.value import element_of, integer_of
from mirlo.dialects.tir.buffers import UNBOUNDED, buffer_bytes, element_bytes
from mirlo.dialects.tir.sizes import SizeEmitter, in_finest, quotients_by_symbol, symbols_of_function
from mirlo.passes.schedule.schedule import FLOPS, MOVED

OPERATIONS_PER_BYTE = 4
"""Cost of accessing a byte, in floating-point operations."""
_FREE = ("arith.constant", "arith.index_cast", "affine.apply", "memref.cast", "memref.alloca", "scf.yield")
_READS = ("memref.load", "vector.load", "vector.maskedload", "vector.transfer_read", "vector.gather")
_WRITES = ("memref.store", "vector.store", "vector.maskedstore", "vector.transfer_write", "vector.scatter")
_COMPUTES = ("arith.", "math.", "vector.")


def flops_of(function: ir.Operation) -> Dim:
    """Return the floating-point operations of a call of a kernel; 0 where they are not recorded."""
    attributes = function.operation.attributes
    if FLOPS not in attributes:
        return 0
    flops = attributes[FLOPS]
    return flops.value if isinstance(flops, ir.IntegerAttr) else D.parse(flops.value)


def moved_bytes(function: ir.Operation, kinds: Sequence[ir.Type]) -> list[Dim | None]:
    """Return the bytes of each buffer of these types that a call of a kernel reads or writes.

    Of an argument that is read in part, only that part counts. Scratch memory of run-time size counts nothing; None
    stands for other buffers of run-time size of a kernel that has no record of them.
    """
    is_recorded = MOVED in function.attributes
    moved = list(dims_of_attribute(function.attributes[MOVED])) if is_recorded else []
    total: list[Dim | None] = []
    for kind, elements in zip_longest(kinds, moved[: len(kinds)]):
        if not isinstance(kind, ir.MemRefType):
            continue
        has_size = kind.has_static_shape and list(kind.shape) != [UNBOUNDED]
        whole: Dim | None = buffer_bytes(kind) if has_size else None
        part = None if elements is None else elements * element_bytes(kind.element_type)
        if whole is None and part is None and is_recorded:
            part = 0
        total.append(whole if part is None else part if whole is None else D.minimum(whole, part))
    return total


def kernel_work(function: ir.Operation | ir.OpView) -> Dim | None:
    """Return the work of a call of a kernel; None where it is not known."""
    op = function.operation
    total = flops_of(op)
    for moved in moved_bytes(op, [argument.type for argument in op.regions[0].blocks[0].arguments]):
        if moved is None or moved is D.UNKNOWN:
            return None
        total = total + OPERATIONS_PER_BYTE * moved
    return total


def emit_work(function: ir.Operation) -> ir.Value | None:
    """Emit the work of a call of a kernel; None where it is not known, or its parameters do not decide on it."""
    work = kernel_work(function)
    if work is None:
        return None
    taken = symbols_of_function(function.opview)
    arguments = list(function.regions[0].blocks[0].arguments)
    values = arguments[len(arguments) - len(taken) :]
    numbers = [D.symbol(f"s{position:04}") for position in range(len(taken))]
    decided: set[str] = set()
    numbered: dict[D.Atom, Dim] = {}
    for dim, number in zip(taken, numbers, strict=True):
        if not isinstance(dim, int) and dim.is_symbol:
            decided.add(str(dim))
            numbered[str(dim)] = number
        for name, quotients in quotients_by_symbol([dim, work]).items():
            if quotients[0].atom == str(dim):
                decided.add(name)
                numbered.update(in_finest(quotients, number))
    if not D.symbols_of(work) <= decided:
        return None
    emitter = SizeEmitter({str(number): value for number, value in zip(numbers, values, strict=True)})
    return emitter.emit(D.substitute(work, numbered))


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
