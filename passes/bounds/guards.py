"""Tests at run time of accesses whose position is clamped, but not proven to be in bounds.

An access outside of its buffer is left out: a load returns zeros, a store does nothing. Lanes of accesses with masks
are tested one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.surgery import clone_with, replace_op
from mirlo.dialects.core.value import Value, create, emit_constant
from mirlo.dialects.tir.sizes import SizeEmitter
from mirlo.passes.bounds.accesses import ACCESSES, Access
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Guard:
    """The test that an access needs: the sizes of the dims of its buffer."""

    op: ir.Operation
    sizes: tuple[Dim, ...]

    @property
    def access(self) -> Access:
        """Return the access with its present operands: another guard may have replaced them."""
        return ACCESSES[self.op.name](self.op)

    def can_be_emitted(self, symbols: Mapping[str, ir.Value]) -> bool:
        """Return whether the kernel knows the sizes, and its lanes can be tested."""
        access = self.access
        if access.mask is not None and access.offsets is None and len(access.lanes) != 1:
            return False
        return all(_is_known(size, symbols) for size in self.sizes)

    def emit(self, sizes: Sequence[ir.Value]) -> None:
        """Put the test around the access; `sizes` are the values of its sizes."""
        access = self.access
        with ir.InsertionPoint(self.op), self.op.location:
            if access.mask is None:
                _emit_branch(access, sizes)
            else:
                _emit_mask(access, access.mask, sizes)


def _emit_branch(access: Access, sizes: Sequence[ir.Value]) -> None:
    op, indices = access.op, access.indices
    lanes = [*[1] * (len(indices) - len(access.lanes)), *access.lanes]
    condition = _all_of(
        _is_within(Value(index), Value(size) - length)
        for index, size, length in zip(indices, sizes, lanes, strict=True)
    )
    results = [value.type for value in op.results]
    branch = scf.IfOp(condition, results, has_else=True)
    with ir.InsertionPoint(branch.then_block):
        inside = clone_with(op, list(op.operands), op.location)
        scf.YieldOp(list(inside.results))
    with ir.InsertionPoint(branch.else_block):
        scf.YieldOp([emit_constant(0, kind) for kind in results])
    replace_op(op, list(branch.results))


def _emit_mask(access: Access, mask: ir.Value, sizes: Sequence[ir.Value]) -> None:
    kind = ir.VectorType.get(mask.type.shape, ir.IndexType.get())
    if access.offsets is None:
        offsets = create("vector.step", kind)
    elif access.offsets.type == kind:
        offsets = Value(access.offsets)
    else:
        offsets = create("arith.index_cast", kind, access.offsets)
    position = _broadcast(access.indices[-1], kind) + offsets
    tests = [_is_within(position, _broadcast(Value(sizes[-1]) - 1, kind))]
    for index, size in zip(access.indices[:-1], sizes[:-1], strict=True):
        tests.append(_broadcast(_is_within(Value(index), Value(size) - 1), mask.type))
    operand = next(i for i, value in enumerate(access.op.operands) if value == mask)
    access.op.operands[operand] = _all_of([Value(mask), *tests])


def emit_guards(function: ir.Operation, guards: Sequence[Guard], symbols: Mapping[str, ir.Value]) -> None:
    """Emit the tests of a kernel, whose sizes are computed at its start."""
    entry = function.regions[0].blocks[0]
    emitter = SizeEmitter(symbols)
    with ir.InsertionPoint.at_block_begin(entry), function.location:
        sizes = [[emitter.emit(size) for size in guard.sizes] for guard in guards]
    for guard, values in zip(guards, sizes, strict=True):
        guard.emit(values)


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


def _broadcast(value: ir.Value, kind: ir.Type) -> Value:
    return create("vector.broadcast", kind, value)
