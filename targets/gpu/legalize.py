"""Legalization rules of GPU targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.legalize.attention import fused_attention
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.attention", target="gpu", name="fused")
def attention(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Legalize attention to one prim function, which the attention schedules compute one tile of scores at a time."""
    if op.softcap is not None:
        return decline("the schedules of attention do not cap scores", softcap=op.softcap)
    return fused_attention(op, b)
