"""Walks of operations, by callbacks from MLIR or as iterators, and handlers of diagnostics.

Exceptions in callbacks are raised unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from mirlo.dialects import wheel
from mirlo.dialects.bindings import ir, rewrite


def walk(
    op: ir.Operation | ir.OpView | ir.Module,
    visit: Callable[[ir.Operation], ir.WalkResult],
    order: ir.WalkOrder = ir.WalkOrder.POST_ORDER,
) -> None:
    """Call `visit` for an operation and all operations in it, inner ones first unless the order is another.

    The result of `visit` decides whether the walk goes on, skips the operations inside, or ends.
    """
    wheel.walk(ir, op.operation, visit, order)


def find_named(op: ir.Operation | ir.OpView | ir.Module, names: Iterable[str]) -> list[ir.Operation]:
    """Return the operations of these names inside of another one, inner ones first.

    MLIR looks for them: Python is called for what is found only, where a walk takes most of its time for the others.
    """
    root = op.operation
    functions = [root, *wheel.find_named(rewrite, root, ("func.func",))]
    if any(len(region.blocks) > 1 for function in functions for region in function.regions):
        return _walked(root, frozenset(names))  # MLIR leaves out blocks that nothing reaches
    return wheel.find_named(rewrite, root, names)


def _walked(root: ir.Operation, names: frozenset[str]) -> list[ir.Operation]:
    matches: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        if inner.name in names and inner != root:
            matches.append(inner)
        return ir.WalkResult.ADVANCE

    walk(root, visit)
    return matches


def with_nested(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yield an operation and those inside of it, outer ones first."""
    yield op
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from with_nested(inner.operation)


def diagnostics_to(context: ir.Context, handle: Callable[[ir.Diagnostic], bool]) -> AbstractContextManager[None]:
    """Call `handle` for each diagnostic inside; it returns whether other handlers are left out."""
    return wheel.diagnostics_to(context, handle)
