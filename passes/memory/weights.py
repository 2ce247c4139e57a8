"""Release of arrays that passes created and that are no longer named: each copy of the weights takes their memory.

Only a compilation that owns its store sets the option `release`; otherwise nothing is released. Modules for other
targets may name arrays in their own form: if there are any, all arrays are kept.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import walk
from mirlo.passes.byoc.artifacts import params_of_artifacts
from mirlo.passes.graph.unknown import UNKNOWN

if TYPE_CHECKING:
    from mirlo.passes.session import Session

RELEASE = "release"
"""The session option that allows releasing."""


def named_arrays(root: ir.Operation) -> Counter[str] | None:
    """Count the constants and artifacts of code generators that name each array; None if others may name some."""
    arrays: Counter[str] = Counter()
    foreign = False

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal foreign
        if op.name == "builtin.module" and op != root:
            foreign = True
            return ir.WalkResult.INTERRUPT
        if op.name == "relax.constant" and op.opview.param is not None:
            arrays[op.opview.param] += 1
        return ir.WalkResult.ADVANCE

    walk(root, visit)
    # Artifacts of code generators receive their constants when the model is loaded.
    arrays.update(params_of_artifacts(root))
    return None if foreign else arrays


def release_unnamed(op: ir.OpView, session: Session) -> None:
    """Release every array that passes created and that no constant of the module names.

    While some layers stand for others, arrays of those that are not in the module stay.
    """
    if UNKNOWN in session.options:
        return
    root = op.operation
    while root.parent is not None:
        root = root.parent.operation
    named = named_arrays(root)
    if named is None:
        return
    for name in session.params.unsaved():
        if not named[name]:
            session.params.discard(name)


class ConstantReleaser:
    """Eraser of constants, one by one, that releases their arrays at once."""

    def __init__(self, module: ir.OpView, session: Session) -> None:
        self.params = session.params
        releases = session.options.get(RELEASE) and UNKNOWN not in session.options
        self.named = named_arrays(module.operation) if releases else None

    def unused(self, constant: ir.Operation | ir.OpView) -> None:
        """Erase a constant if nothing uses it any more."""
        if self.named is None or any(True for _ in constant.results[0].uses):
            return
        name = constant.operation.opview.param
        constant.operation.erase()
        if name is None:
            return
        self.named[name] -= 1
        if not self.named[name] and name in self.params and self.params.source(name) is None:
            self.params.discard(name)
