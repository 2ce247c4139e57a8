"""A rule whose operator is spelt wrong."""

from __future__ import annotations

from typing import Any

from mirlo.extend.ops import DialectOp, operand, register_dialect, result
from mirlo.extend.rules import decline, legalize


class Chain(DialectOp, name="chain", dialect=register_dialect("test")):
    """What the module has besides."""

    x, output = operand(), result()
    infer = staticmethod(lambda x: x)


@legalize("relax.sofmax", target="llvm")
def lost(op: Any, b: Any) -> Any:
    return decline("never asked")
