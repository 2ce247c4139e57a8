"""Lowering of `tir.call_extern` to calls of declared functions, which the linker or the loader resolves."""

from __future__ import annotations

from mirlo.dialects.bindings import arith, func, ir, memref
from mirlo.dialects.core.surgery import enclosing, replace_op
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.walk import walk
from mirlo.passes.registry import PassError

CALL = "tir.call_extern"


def lower_found_calls(root: ir.Operation | ir.OpView, calls: list[ir.Operation]) -> None:
    """Lower all external calls in an operation; the functions are declared, private, in its module."""
    if not calls:
        return
    block = enclosing(root, "builtin.module").regions[0].blocks[0]
    declared = {symbol_name(f): f.function_type.value for f in block.operations if f.operation.name == "func.func"}
    mixed = _mixed_buffers(calls)
    for call in calls:
        _lower_call(call, block, declared, call.opview.function in mixed)


def _mixed_buffers(calls: list[ir.Operation]) -> set[str]:
    """Return functions that are called with buffers of several types: they take buffers as pointers."""
    types: dict[str, list[ir.Type]] = {}
    mixed = set()
    for call in calls:
        operand_types = [v.type for v in call.operands]
        known = types.setdefault(call.opview.function, operand_types)
        both = zip(known, operand_types, strict=False)
        if any(a != b and _is_address(a) and _is_address(b) for a, b in both):
            mixed.add(call.opview.function)
    return mixed


def _is_address(kind: ir.Type) -> bool:
    return isinstance(kind, ir.MemRefType) or str(kind) == "!llvm.ptr"


def find(root: ir.Module | ir.OpView | ir.Operation, name: str) -> list[ir.Operation]:
    """Return the operations of a name in another one, in pre-order."""
    return find_all(root, name)[name]


def find_outermost(root: ir.Module | ir.OpView | ir.Operation, name: str) -> list[ir.Operation]:
    """Return the operations of a name in another one that are not inside of one with the same name."""
    result: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name != name:
            return ir.WalkResult.ADVANCE
        result.append(op)
        return ir.WalkResult.SKIP

    walk(root, visit, ir.WalkOrder.PRE_ORDER)
    return result


def find_all(root: ir.Module | ir.OpView | ir.Operation, *names: str) -> dict[str, list[ir.Operation]]:
    """Return the operations of several names in another one, in pre-order: walking all operations is slow."""
    result: dict[str, list[ir.Operation]] = {name: [] for name in names}

    def visit(op: ir.Operation) -> ir.WalkResult:
        same = result.get(op.name)
        if same is not None:
            same.append(op)
        return ir.WalkResult.ADVANCE

    walk(root, visit, ir.WalkOrder.PRE_ORDER)
    return result


def _lower_call(op: ir.Operation, block: ir.Block, declared: dict[str, ir.FunctionType], as_pointers: bool) -> None:
    view = op.opview
    operands = list(op.operands)
    if as_pointers:
        with ir.InsertionPoint(op), op.location:
            operands = [_pointer(v) if isinstance(v.type, ir.MemRefType) else v for v in operands]
    types = ir.FunctionType.get([v.type for v in operands], [v.type for v in op.results])
    if view.function not in declared:
        with ir.InsertionPoint.at_block_begin(block), op.location:
            func.FuncOp(view.function, types, visibility="private")
        declared[view.function] = types
    elif declared[view.function] != types:
        raise PassError(f"'{view.function}' is called with {types}, but with other types elsewhere", op.location)
    with ir.InsertionPoint(op), op.location:
        call = func.CallOp(list(types.results), ir.FlatSymbolRefAttr.get(view.function), operands)
    replace_op(op, list(call.results))


def _pointer(buffer: ir.Value) -> ir.Value:
    """Return the address of a buffer's first element."""
    i64 = ir.IntegerType.get_signless(64)
    address = arith.IndexCastOp(i64, memref.ExtractAlignedPointerAsIndexOp(buffer).result).result
    # Without the dialect's classes, which take 20 ms to create.
    return ir.Operation.create("llvm.inttoptr", results=[ir.Type.parse("!llvm.ptr")], operands=[address]).results[0]
