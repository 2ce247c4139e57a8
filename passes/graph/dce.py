"""The pass `remove-dead`: dead code elimination of pure operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import is_graph_operation
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.surgery import blocks, erase_dead
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.registry import Pass, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


def is_pure_relax(op: ir.Operation | ir.OpView) -> bool:
    """Return whether an operation is a pure operator of graphs, of relax or of a plug-in."""
    name = op.name
    return (name.startswith("relax.") or is_graph_operation(name)) and class_of(op).PURE


def erase_uncalled(module: ir.OpView | ir.Operation) -> None:
    """Erase the private prim functions that nothing references any more, as their calls were dead."""
    functions = [
        op.operation for op in module.operation.regions[0].blocks[0].operations if op.operation.name == "func.func"
    ]
    kernels = [function for function in functions if is_prim_func(function) and _is_private(function)]
    if len(kernels) == len(functions):
        return
    waiting: list[ir.Operation] = [function for function in functions if function not in kernels]
    by_name = {symbol_name(function): function for function in kernels}
    while waiting:
        for name in _named_in(waiting.pop()):
            if name in by_name:
                waiting.append(by_name.pop(name))
    for function in by_name.values():
        function.erase()


def _named_in(function: ir.Operation) -> set[str]:
    """Return the symbols that the operations of a function name."""
    names: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        pending = [op.attributes[i].attr for i in range(len(op.attributes))]
        while pending:
            attribute = pending.pop()
            if isinstance(attribute, ir.FlatSymbolRefAttr):
                names.add(attribute.value)
            elif isinstance(attribute, ir.ArrayAttr):
                pending += list(attribute)
            elif isinstance(attribute, ir.DictAttr):
                pending += [attribute[i].attr for i in range(len(attribute))]
        return ir.WalkResult.ADVANCE

    walk(function, visit, ir.WalkOrder.PRE_ORDER)
    return names


def _is_private(function: ir.Operation) -> bool:
    attribute = function.attributes.get("sym_visibility", None)
    return attribute is not None and ir.StringAttr(attribute).value == "private"


@register_pass
@dataclass(frozen=True)
class RemoveDead(Pass):
    """Erase pure relax operators whose results have no users."""

    name = "remove-dead"
    keeps_layers = True
    contained = True
    trusted = True
    anchor = "func.func"

    def run(self, op: ir.OpView, session: Session) -> None:
        for block in reversed(blocks(op)):
            erase_dead(block, is_pure_relax)
