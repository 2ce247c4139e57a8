"""`tir.call_extern` becomes a call of a declared function, which the linker or the loader finds."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.surgery import replace_op
from mirlo.passes.registry import PassError


def lower_calls(root: Any) -> None:
    """Lower all external calls in an operation; the functions are declared, private, in its module."""
    calls = find(root, "tir.call_extern")
    if not calls:
        return
    module = root.operation
    while module.name != "builtin.module":
        module = module.parent.operation
    block = module.regions[0].blocks[0]
    declared = {f.name.value: f.function_type.value for f in block.operations if f.operation.name == "func.func"}
    for call in calls:
        _lower_call(call, block, declared)


def find(root: Any, name: str) -> list[Any]:
    """The operations of a name in another, outer ones first."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == name:
            found.append(op)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _lower_call(op: Any, block: Any, declared: dict[str, Any]) -> None:
    view = op.opview
    types = ir.FunctionType.get([v.type for v in op.operands], [v.type for v in op.results])
    if view.function not in declared:
        with ir.InsertionPoint.at_block_begin(block), op.location:
            func.FuncOp(view.function, types, visibility="private")
        declared[view.function] = types
    elif declared[view.function] != types:
        raise PassError(f"'{view.function}' is called with {types}, but with other types elsewhere", op.location)
    with ir.InsertionPoint(op), op.location:
        call = func.CallOp(list(types.results), ir.FlatSymbolRefAttr.get(view.function), list(op.operands))
    replace_op(op, list(call.results))
