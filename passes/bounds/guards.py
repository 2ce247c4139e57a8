"""Tests at run time of accesses whose position is not proven to be in bounds.

An access outside of its buffer is left out: a load returns zeros, a store does nothing. Lanes of accesses with masks
are tested one by one. A view is tested too: that it lies in the buffer that it is part of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.surgery import clone_with, replace_op
from mirlo.dialects.core.value import Value, create, emit_constant
from mirlo.dialects.tir.buffers import UNBOUNDED, buffer_bytes, element_bytes
from mirlo.dialects.tir.sizes import SizeEmitter, add_symbols
from mirlo.passes.bounds.accesses import ACCESSES, Access
from mirlo.passes.bounds.kernel import KernelBounds
from mirlo.passes.bounds.local_buffers import RESHAPES
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Guard:
    """The test that an access needs: the bytes of the memory of its buffer, or of the buffer that it is a view of."""

    op: ir.Operation
    bytes: Dim

    @property
    def access(self) -> Access:
        """Return the access with its present operands, which another guard may have replaced."""
        return ACCESSES[self.op.name](self.op)

    @property
    def can_be_emitted(self) -> bool:
        """Return whether lanes of the access can be tested."""
        access = self.access
        return access.mask is None or access.offsets is not None or len(access.lanes) == 1

    def elements(self) -> Dim | None:
        """Return the number of elements of a buffer without static sizes, if it is known before the access."""
        buffer = self.access.buffer
        return None if _is_static(buffer) or _views(buffer) else self.bytes // _element_bytes(buffer)

    def emit(self, size: ir.Value) -> None:
        """Put the test around the access; `size` are the elements of its buffer if it has no view, bytes otherwise."""
        access = self.access
        with ir.InsertionPoint(self.op), self.op.location:
            sizes, tests = _emit_sizes(access.buffer, Value(size))
            if access.mask is None:
                _emit_branch(access, sizes, tests)
            else:
                _emit_mask(access, access.mask, sizes, tests)


def _views(buffer: ir.Value) -> list[ir.Operation]:
    """Return the view operations that lead from a buffer to its memory, the outermost first."""
    views = []
    while not isinstance(buffer.owner, ir.Block):
        op = buffer.owner.operation
        if op.name not in (*RESHAPES, "memref.view"):
            break
        if op.name == "memref.view":
            views.append(op)
        buffer = op.operands[0]
    return views[::-1]


def _is_static(buffer: ir.Value) -> bool:
    kind = ir.MemRefType(buffer.type)
    return bool(kind.has_static_shape) and UNBOUNDED not in kind.shape


def _element_bytes(buffer: ir.Value) -> int:
    return element_bytes(ir.MemRefType(buffer.type).element_type)


def _emit_sizes(buffer: ir.Value, size: Value) -> tuple[list[Value], list[Value]]:
    """Return the sizes of the dims of a buffer, and the tests that it lies in the memory that it is a view of."""
    views, tests = _views(buffer), []
    for op in views:
        start, part = Value(op.operands[1]), op.results[0]
        tests.append(start >= 0)
        size = size - start
        if _is_static(part):
            bytes_of_part = buffer_bytes(part.type)
            tests.append(size >= bytes_of_part)
            size = _index(bytes_of_part)
    if _is_static(buffer):
        return [_index(dim) for dim in ir.MemRefType(buffer.type).shape], tests
    # Rounded towards zero, what is left of a buffer after the start of a view is no element either.
    return [create("arith.divsi", size.type, size, _index(_element_bytes(buffer))) if views else size], tests


def _emit_branch(access: Access, sizes: Sequence[Value], tests: Sequence[Value]) -> None:
    op, indices = access.op, access.indices
    lanes = [*[1] * (len(indices) - len(access.lanes)), *access.lanes]
    in_dims = (
        _is_within(Value(index), size - length) for index, size, length in zip(indices, sizes, lanes, strict=True)
    )
    condition = _all_of([*tests, *in_dims])
    results = [value.type for value in op.results]
    branch = scf.IfOp(condition, results, has_else=True)
    with ir.InsertionPoint(branch.then_block):
        inside = clone_with(op, list(op.operands), op.location)
        scf.YieldOp(list(inside.results))
    with ir.InsertionPoint(branch.else_block):
        scf.YieldOp([emit_constant(0, kind) for kind in results])
    replace_op(op, list(branch.results))


def _emit_mask(access: Access, mask: ir.Value, sizes: Sequence[Value], tests: Sequence[Value]) -> None:
    kind = ir.VectorType.get(mask.type.shape, ir.IndexType.get())
    if access.offsets is None:
        offsets = create("vector.step", kind)
    elif access.offsets.type == kind:
        offsets = Value(access.offsets)
    else:
        offsets = create("arith.index_cast", kind, access.offsets)
    position = _broadcast(access.indices[-1], kind) + offsets
    of_lanes = [_is_within(position, _broadcast(sizes[-1] - 1, kind))]
    outer = [_is_within(Value(i), size - 1) for i, size in zip(access.indices[:-1], sizes[:-1], strict=True)]
    of_lanes += [_broadcast(test, mask.type) for test in (*tests, *outer)]
    operand = next(i for i, value in enumerate(access.op.operands) if value == mask)
    access.op.operands[operand] = _all_of([Value(mask), *of_lanes])


def emit_guards(function: ir.Operation, guards: Sequence[Guard], symbols: Mapping[str, ir.Value]) -> None:
    """Emit the tests of a kernel; sizes are computed at its start, or passed by callers if they are not known there."""
    needed = [guard.elements() for guard in guards]
    dims = [guard.bytes if each is None else each for guard, each in zip(guards, needed, strict=True)]
    missing = list(dict.fromkeys(dim for dim in dims if not _is_known(dim, symbols)))
    added = dict(zip(missing, add_symbols(function, missing), strict=True))
    entry = function.regions[0].blocks[0]
    emitter = SizeEmitter(symbols)
    with ir.InsertionPoint.at_block_begin(entry), function.location:
        sizes = [added[dim] if dim in added else emitter.emit(dim) for dim in dims]
    for guard, size in zip(guards, sizes, strict=True):
        guard.emit(size)


def _is_known(size: Dim, symbols: Mapping[str, ir.Value]) -> bool:
    for atoms, _ in D.terms_of(size):
        for atom in atoms:
            parts = D.atom_parts(atom)
            if atom not in symbols and (parts is None or not all(_is_known(part, symbols) for part in parts[1:])):
                return False
    return True


def _is_within(index: Value, last: Value) -> Value:
    """Return whether an index is neither negative nor larger than the last one, which is negative if there is none."""
    return (index >= 0) & (index <= last)


def _all_of(tests: Iterable[Value]) -> Value:
    first, *rest = tests
    for test in rest:
        first = first & test
    return first


def _index(number: int) -> Value:
    return Value(emit_constant(number, ir.IndexType.get()))


def _broadcast(value: ir.Value, kind: ir.Type) -> Value:
    return create("vector.broadcast", kind, value)


def needed_guards(kernels: Sequence[KernelBounds]) -> Iterator[Guard]:
    """Yield the tests that accesses need in some call of a kernel."""
    unproven = [dict(kernel.unproven) for kernel in kernels]
    for op in dict.fromkeys(op for each in unproven for op in each):
        may_be_tested = all(
            op in kernel.guardable for kernel, each in zip(kernels, unproven, strict=True) if op in each
        )
        if may_be_tested:
            sizes = {kernel.bytes_behind(ACCESSES[op.name](op)) for kernel in kernels}
            only = sizes.pop()
            if only is not None and not sizes:
                yield Guard(op, only)
