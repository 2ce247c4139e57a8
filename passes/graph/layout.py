"""The pass `convert-layout`: converts operators to requested layouts, and sinks permutes until they cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.graph.requested_layouts import (
    CALLBACK,
    CHANNELS_LAST,
    RequestedLayouts,
    layouts_of_code_generator,
    parse_layouts,
)
from mirlo.passes.graph.rewrite import rewrite
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import LAYOUT, SIMPLIFY
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

_MOVES = ("relax.permute", "relax.reshape")


@register_pass
@dataclass(frozen=True)
class ConvertLayout(Pass):
    """Convert operators to requested layouts, by default convolutions and what follows them to channels-last data.

    Request other layouts by operator, `layouts={relax.conv=N*C:O*I,relax.max_pool=N*C}` (data layout and kernel
    layout), or by a function of each operation, the session's option "layouts". In the module of a code generator
    that declares layouts, those are used.

    The inserted permutes carry the attribute `relax.layout`. They sink through the operators below (rules in
    `passes/graph/rules/layout.py`) and cancel where they meet. `fold-constant` folds permuted weights.
    """

    name = "convert-layout"
    keeps_layers = True
    contained = True
    trusted = True
    anchor = "func.func"
    layouts: tuple[str, ...] = option((), "layouts by operator, relax.conv=N*C:O*I")

    def run(self, op: ir.OpView, session: Session) -> None:
        if not len(op.operation.regions[0].blocks):
            return
        rewrite(op, LAYOUT, session, layouts=self._desired(op, session))
        if external_target(op) is None:
            simplify_moves(op, session)

    def _desired(self, function: ir.OpView, session: Session) -> RequestedLayouts:
        if self.layouts:
            return parse_layouts(self.layouts)
        if session.options.get(CALLBACK) is not None:
            return RequestedLayouts(callback=session.options[CALLBACK])
        target = external_target(function)
        return (layouts_of_code_generator(target) if target is not None else None) or CHANNELS_LAST


def external_target(function: ir.OpView) -> str | None:
    """Return the target of the external module that a function is in, or None."""
    module = function.operation.parent
    target = module.attributes.get("relax.external") if module is not None else None
    return target.value if isinstance(target, ir.StringAttr) else None


def simplify_moves(function: ir.OpView | ir.Operation, session: Session) -> None:
    """Merge permutes and reshapes, and replace permutes that move no elements by reshapes.

    In an external module that must wait: `hoist-layouts` moves permutes to its callers, and code generators support
    few reshapes.
    """
    rewrite(function, SIMPLIFY, session, only=_MOVES)
