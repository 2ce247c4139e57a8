"""Letting go of arrays that passes made and that nothing names any more: each copy of the weights takes their memory.

A compilation whose store belongs to it alone says so with the option `release`; elsewhere, nothing is let go. Modules
for other targets may name arrays in ways of their own: where there are any, everything is kept.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.passes.byoc.artifacts import params_of_artifacts

RELEASE = "release"
"""The session's option."""


def named_arrays(root: Any) -> Counter[str] | None:
    """How many constants, and artifacts of code generators, name each array; None where others may name some."""
    found: Counter[str] = Counter()
    foreign = False

    def visit(op: Any) -> Any:
        nonlocal foreign
        if op.name == "builtin.module" and op != root:
            foreign = True
            return ir.WalkResult.INTERRUPT
        if op.name == "relax.constant" and op.opview.param is not None:
            found[op.opview.param] += 1
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    # What code generators made is handed its constants when the model is loaded.
    found.update(params_of_artifacts(root))
    return None if foreign else found


def release_unnamed(op: Any, session: Any) -> None:
    """Let go of every array that passes made and that no constant of the module names."""
    root = op.operation
    while root.parent is not None:
        root = root.parent.operation
    named = named_arrays(root)
    if named is None:
        return
    for name in session.params.unsaved():
        if not named[name]:
            session.params.discard(name)


class Releaser:
    """Erases constants one by one, and lets go of their arrays at once."""

    def __init__(self, module: Any, session: Any) -> None:
        self.params = session.params
        self.named = named_arrays(module.operation) if session.options.get(RELEASE) else None

    def unused(self, constant: Any) -> None:
        """Erase a constant if nothing uses it any more."""
        if self.named is None or any(True for _ in constant.results[0].uses):
            return
        name = constant.opview.param
        constant.operation.erase()
        if name is None:
            return
        self.named[name] -= 1
        if not self.named[name] and name in self.params and self.params.source(name) is None:
            self.params.discard(name)
