"""Rules by which targets for GPUs compute operators in their own way."""

from __future__ import annotations

from typing import Any

from mirlo.passes.legalize.attention import fused_attention
from mirlo.passes.rules import legalize


@legalize("relax.attention", target="gpu", name="fused")
def attention(op: Any, b: Any) -> Any:
    """One prim function, which the schedules of attention compute a tile of scores at a time."""
    return fused_attention(op, b)
