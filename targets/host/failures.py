"""Calls that may fail: the caller returns after a call that failed."""

from __future__ import annotations

from mirlo.dialects.bindings import ir


def return_on_failure(function: ir.Operation, symbols: set[str]) -> None:
    """Branch after each call to the rest of its block or to a return.

    Calls return a status, or a pointer that is null on failure.
    """
    region, failed = function.regions[0], None
    for block in list(region.blocks):
        operations = [op.operation for op in block.operations]
        positions = [i for i, op in enumerate(operations) if op.name == "llvm.call" and _callee(op) in symbols]
        # From the last one on, so that each operation moves once.
        for position in reversed(positions):
            if failed is None:
                failed = region.blocks.append()
                with ir.InsertionPoint(failed), function.location:
                    ir.Operation.create("llvm.return")
            rest = block.create_after()
            for op in operations[position + 1 :]:
                rest.append(op)
            del operations[position + 1 :]
            with ir.InsertionPoint(block), operations[position].location:
                operations += _branch(operations[position].results[0], failed, rest)


def _callee(call: ir.Operation) -> str | None:
    attribute = call.attributes.get("callee")
    return None if attribute is None else ir.FlatSymbolRefAttr(attribute).value


def _branch(result: ir.Value, failed: ir.Block, rest: ir.Block) -> list[ir.Operation]:
    """Emit a branch by the result of a call; return the operations."""
    i1, i64 = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(64)
    zeros = []
    if result.type != i1:
        zeros.append(ir.Operation.create("llvm.mlir.zero", results=[result.type]))
        equal = {"predicate": ir.IntegerAttr.get(i64, 0)}
        operands = [result, zeros[0].results[0]]
        zeros.append(ir.Operation.create("llvm.icmp", results=[i1], operands=operands, attributes=equal))
    test = zeros[-1].results[0] if zeros else result
    sizes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0])}
    branch = ir.Operation.create("llvm.cond_br", operands=[test], successors=[failed, rest], attributes=sizes)
    return [*zeros, branch]
