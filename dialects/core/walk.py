"""Callbacks from MLIR: walks of operations, and handlers of diagnostics.

Exceptions in callbacks are raised unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from mirlo.dialects import wheel
from mirlo.dialects.bindings import ir


def walk(
    op: ir.Operation | ir.OpView | ir.Module,
    visit: Callable[[ir.Operation], ir.WalkResult],
    order: ir.WalkOrder = ir.WalkOrder.POST_ORDER,
) -> None:
    """Call `visit` for an operation and all operations in it, inner ones first unless the order is another.

    The result of `visit` decides whether the walk goes on, skips the operations inside, or ends.
    """
    wheel.walk(ir, op.operation, visit, order)


def diagnostics_to(context: ir.Context, handle: Callable[[ir.Diagnostic], bool]) -> AbstractContextManager[None]:
    """Call `handle` for each diagnostic inside; it returns whether other handlers are left out."""
    return wheel.diagnostics_to(context, handle)
