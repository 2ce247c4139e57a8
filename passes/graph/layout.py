"""The pass `convert-layout`: convolutions and pools with channels last, the permutes sunk until they cancel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirlo.passes.graph.rewrite import load_rules, rewrite
from mirlo.passes.registry import Pass, register_pass
from mirlo.passes.rules import LAYOUT, SIMPLIFY

_MOVES = ("relax.permute", "relax.reshape")


@register_pass
@dataclass(frozen=True)
class ConvertLayout(Pass):
    """Convert convolutions and pools to channels-last data and kernels.

    The permutes that this needs carry the attribute `relax.layout`; they sink through the operators below (rules in
    `passes/graph/rules/layout.py`) and cancel where they meet. Permuted weights are folded by `fold-constant`.
    """

    name = "convert-layout"
    anchor = "func.func"

    def run(self, op: Any, session: Any) -> None:
        if not len(op.operation.regions[0].blocks):
            return
        load_rules("mirlo.passes.graph.rules")
        rewrite(op, LAYOUT, session)
        rewrite(op, SIMPLIFY, session, only=_MOVES)
