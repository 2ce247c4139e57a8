"""Attention as one prim function, which schedules of their own compute by blocks or by pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.legalize.attention import fused_attention, fused_paged_attention
from mirlo.passes.rules import Decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.attention", "relax.attention_with_sinks", "relax.attention_with_scales", target="llvm", name="fused")
def attention(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Legalize to one prim function, which the schedule `blocked` computes a block of rows at a time."""
    return fused_attention(op, b)


@legalize("relax.paged_attention", target="llvm", name="fused")
def paged_attention(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Legalize to one prim function, which the schedule `paged` computes a page at a time for one new token."""
    return fused_paged_attention(op, b)
