"""Default rule of conversions between element types."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.tir.compute import Expr, is_coded
from mirlo.passes.legalize.helpers import elementwise, saturated
from mirlo.passes.rules import legalize


@legalize("relax.cast")
def cast(op: Any, b: Any) -> Any:
    target = op.dtype

    def converted(x: Expr) -> Expr:
        value = x.cast(target)
        return saturated(value) if is_coded(target) and op.saturate else value

    return elementwise(op, b, [op.x], converted)
