"""Legalization rules that target `llvm` has for itself."""

from __future__ import annotations

from typing import Any

from mirlo.passes.legalize.attention import fused_attention
from mirlo.passes.rules import legalize
from mirlo.targets.llvm.legalize import joins, sorting, trees

__all__ = ["attention", "joins", "sorting", "trees"]


@legalize("relax.attention", "relax.attention_with_sinks", target="llvm", name="fused")
def attention(op: Any, b: Any) -> Any:
    """Legalize to one prim function, which the schedule `blocked` computes a block of rows at a time."""
    return fused_attention(op, b)
