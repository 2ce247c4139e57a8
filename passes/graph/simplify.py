"""The pass `simplify`: algebraic rewrites of the graph, by rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.graph.rewrite import explain, rewrite
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import COMBINE, RECOGNIZE, SIMPLIFY
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class Simplify(Pass):
    """Simplify the graph algebraically: remove operators, or replace them by cheaper ones with the same result.

    The rules are in `passes/graph/rules` and run to a fixed point. Rules that recognize a decomposed operator come
    first.
    """

    name = "simplify"
    keeps_layers = True
    contained = True
    trusted = True
    anchor = "func.func"
    combine: bool = option(True, "put operators into one that patterns of code generators name one by one")
    explain: bool = option(False, "print why pattern rules declined operators")

    def run(self, op: ir.OpView, session: Session) -> None:
        if not len(op.operation.regions[0].blocks):
            return
        for book in (RECOGNIZE, COMBINE) if self.combine else (RECOGNIZE,):
            rewrite(op, book, session)
            if self.explain:
                explain(op, book, session)
        rewrite(op, SIMPLIFY, session)
