"""The pass `simplify`: algebra on the graph, by rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirlo.passes.graph.rewrite import explain, load_rules, rewrite
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import RECOGNIZE, SIMPLIFY


@register_pass
@dataclass(frozen=True)
class Simplify(Pass):
    """Remove and replace operators by cheaper ones that give the same result.

    The rules are in `passes/graph/rules`; they are applied until none accepts. Those that recognize an operator in what
    a model spells out come first.
    """

    name = "simplify"
    contained = True
    trusted = True
    anchor = "func.func"
    explain: bool = option(False, "tell why rules of recognition left operators as they are")

    def run(self, op: Any, session: Any) -> None:
        if not len(op.operation.regions[0].blocks):
            return
        load_rules("mirlo.passes.graph.rules")
        rewrite(op, RECOGNIZE, session)
        if self.explain:
            explain(op, RECOGNIZE, session)
        rewrite(op, SIMPLIFY, session)
