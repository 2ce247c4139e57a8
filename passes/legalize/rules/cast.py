"""Default rule of conversions between element types."""

from __future__ import annotations

from typing import Any

from mirlo.passes.legalize.helpers import elementwise
from mirlo.passes.rules import legalize


@legalize("relax.cast")
def cast(op: Any, b: Any) -> Any:
    return elementwise(op, b, [op.x], lambda x: x.cast(op.dtype))
