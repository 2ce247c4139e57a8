"""The memory of a kernel: its parameters, its scratch buffers, and views of them."""

from __future__ import annotations

from collections.abc import Mapping

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.index_expr import IndexExpr, number
from mirlo.dialects.tir.buffers import UNBOUNDED, element_bytes
from mirlo.passes.bounds.local_buffers import RESHAPES
from mirlo.passes.bounds.values import ValueReader
from mirlo.passes.memory.plan import READABLE
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class View:
    """The memory behind a buffer value: `bytes` from its first element on, or None and why that is not known."""

    shape: tuple[int, ...]
    """The sizes of its dims; `UNBOUNDED` for a dynamic size."""
    bytes: IndexExpr | None
    element_bytes: int
    why: str = ""
    is_padded: bool = False
    """Whether there is a first element to read also where there are no elements."""
    starts: tuple[tuple[IndexExpr, str], ...] = ()
    """Expressions that must not be negative for the view to lie in its buffer, and what they are."""

    @property
    def readable(self) -> IndexExpr | None:
        """Return the bytes that may be read; None for no more than `bytes`."""
        if not self.is_padded or self.bytes is None:
            return None
        return number(D.maximum(self.bytes.constant, min(self.element_bytes, READABLE)))

    @property
    def is_static(self) -> bool:
        return UNBOUNDED not in self.shape and all(size >= 0 for size in self.shape)


class ViewReader:
    """The views of one kernel."""

    def __init__(self, values: ValueReader, sizes: Mapping[int, Dim]) -> None:
        self.values = values
        self.sizes = sizes
        """The numbers of elements of parameters that have dynamic sizes, by position."""
        self._read: dict[ir.Value, View] = {}

    def read(self, value: ir.Value) -> View:
        """Return the memory of a buffer value."""
        known = self._read.get(value)
        if known is None:
            known = self._read_new(value)
            self._read[value] = known
        return known

    def memory(self, value: ir.Value) -> Dim | None:
        """Return the bytes of the memory that a buffer is, or is a view of; None if they are not known."""
        while not isinstance(value.owner, ir.Block) and value.owner.operation.name in (*RESHAPES, "memref.view"):
            value = value.owner.operation.operands[0]
        size = self.read(value).bytes
        return None if size is None or not size.is_constant else size.constant

    def _read_new(self, value: ir.Value) -> View:
        kind = ir.MemRefType(value.type)
        shape, size = tuple(kind.shape), element_bytes(kind.element_type)
        owner = value.owner
        if isinstance(owner, ir.Block):
            return self._parameter(ir.BlockArgument(value), owner, shape, size)
        op = owner.operation
        static = _static_bytes(shape, size)
        if op.name in ("memref.alloca", "memref.alloc", "memref.get_global"):
            return View(shape, static, size, "" if static is not None else "its size is a value of the kernel")
        if op.name in RESHAPES:
            source = self.read(op.operands[0])
            return View(shape, source.bytes, size, source.why, source.is_padded, source.starts)
        if op.name == "memref.view" and len(op.operands) == 2:
            return self._part(op, shape, size, static)
        return View(shape, None, size, f"the view '{op.name}' is not known")

    def _parameter(self, argument: ir.BlockArgument, block: ir.Block, shape: tuple[int, ...], size: int) -> View:
        static = _static_bytes(shape, size)
        if static is not None:
            return View(shape, static, size)
        elements = self.sizes.get(argument.arg_number) if block.owner.operation.name == "func.func" else None
        if elements is None:
            return View(shape, None, size, f"no call tells the size of parameter {argument.arg_number}")
        return View(shape, number(elements * size), size, is_padded=True)

    def _part(self, op: ir.Operation, shape: tuple[int, ...], size: int, static: IndexExpr | None) -> View:
        """Return a part of a buffer of bytes."""
        source, start = self.read(op.operands[0]), self.values.read(op.operands[1])
        if source.bytes is None:
            return View(shape, None, size, source.why)
        rest = source.bytes - start
        starts = [*source.starts, (start, "the start of the view")]
        if static is not None:
            starts.append((rest - static, "the end of the view"))
        return View(shape, without_padding(rest) if static is None else static, size, starts=tuple(starts))


def without_padding(size: IndexExpr) -> IndexExpr:
    """Return a lower bound of a size, without the rounding of its parts up to multiples."""
    dim = size.constant
    if isinstance(dim, int):
        return size
    result: Dim = 0
    for atoms, factor in dim.terms:
        unpadded = _unpadded(atoms[0], factor) if len(atoms) == 1 else None
        result = result + (SymbolicDim(((atoms, factor),)) if unpadded is None else unpadded)
    return IndexExpr(size.terms, result)


def _unpadded(atom: str, factor: int) -> Dim | None:
    """Return `n` for `factor * ((n + factor - 1) floordiv factor)`, and multiples of it."""
    parts = D.atom_parts(atom)
    if parts is None or parts[0] != "floordiv" or not isinstance(parts[2], int) or factor <= 0 or factor % parts[2]:
        return None
    _, padded, divisor = parts
    size = padded - (divisor - 1)
    is_rounded_up = D.terms_of(size)[-1][0] != ()  # there is no constant left
    return size * (factor // divisor) if is_rounded_up else None


def _static_bytes(shape: tuple[int, ...], size: int) -> IndexExpr | None:
    total = size
    for dim in shape:
        if dim < 0 or dim == UNBOUNDED:
            return None
        total *= dim
    return number(total)
