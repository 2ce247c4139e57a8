"""Bodies of the run-time calls of a planned function: memory of data-dependent sizes, their errors, profiles."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.memory.names import ALLOCATE, CHECK, GROW, POLL, SLOT, TICK

CANNOT_FAIL = {SLOT, TICK}
"""The functions whose calls are not followed by a check."""


def define(module: ir.Module, caller: str, allocator: int | None, counter: str = "llvm.readcyclecounter") -> None:
    """Define the bodies of the declarations, and make the caller return if a call fails.

    `allocator` is the word of the call record with the allocation function; None if there is no record. `counter` is
    LLVM's intrinsic for the ticks of profiles.
    """
    functions = {symbol_name(op): op.operation for op in module.body.operations if symbol_name(op)}
    texts = {TICK: _tick(counter)}
    if allocator is not None:
        texts |= {ALLOCATE: _allocate(allocator), CHECK: _CHECK, GROW: _grow(allocator), SLOT: _SLOT}
    declared = texts.keys() & functions.keys()
    if not declared:
        return
    for name in declared:
        functions[name].erase()
    new_module = ir.Module.parse("\n".join(texts[name] for name in sorted(declared)))
    for op in new_module.body.operations:
        module.body.append(op.operation.clone())
    if declared - CANNOT_FAIL:
        return_on_failure(functions[caller], declared - CANNOT_FAIL)


def end_where_interrupted(module: ir.Module, caller: str) -> None:
    """Emit the return from the caller after an exception of a signal handler."""
    functions = {symbol_name(op): op.operation for op in module.body.operations if symbol_name(op)}
    if POLL in functions:
        return_on_failure(functions[caller], {POLL})


def _allocate(word: int) -> str:
    """Return the call of the function in this word of the call record, which returns a pointer or null."""
    return f"""
      llvm.func internal @{ALLOCATE}(%record: !llvm.ptr, %number: i64, %bytes: i64) -> !llvm.ptr {{
        %slot = llvm.getelementptr %record[{word}] : (!llvm.ptr) -> !llvm.ptr, i64
        %function = llvm.load %slot : !llvm.ptr -> !llvm.ptr
        %memory = llvm.call %function(%record, %number, %bytes) : !llvm.ptr, (!llvm.ptr, i64, i64) -> !llvm.ptr
        llvm.return %memory : !llvm.ptr
      }}"""


def _grow(word: int) -> str:
    """Return the memory of a slot, replaced by memory of twice the size or more if it has fewer bytes."""
    return f"""
      llvm.func internal @{GROW}(%record: !llvm.ptr, %slot: !llvm.ptr, %bytes: i64) -> !llvm.ptr {{
        %room_p = llvm.getelementptr %slot[1] : (!llvm.ptr) -> !llvm.ptr, i64
        %room = llvm.load %room_p : !llvm.ptr -> i64
        %least = llvm.mlir.constant(64 : i64) : i64
        %wanted = llvm.intr.smax(%bytes, %least) : (i64, i64) -> i64
        %fits = llvm.icmp "sle" %wanted, %room : i64
        llvm.cond_br %fits, ^same, ^more
      ^same:
        %kept = llvm.load %slot : !llvm.ptr -> !llvm.ptr
        llvm.return %kept : !llvm.ptr
      ^more:
        %twice = llvm.add %room, %room : i64
        %new_room = llvm.intr.smax(%wanted, %twice) : (i64, i64) -> i64
        %function_p = llvm.getelementptr %record[{word}] : (!llvm.ptr) -> !llvm.ptr, i64
        %function = llvm.load %function_p : !llvm.ptr -> !llvm.ptr
        %none = llvm.mlir.constant(-1 : i64) : i64
        %memory = llvm.call %function(%record, %none, %new_room) : !llvm.ptr, (!llvm.ptr, i64, i64) -> !llvm.ptr
        llvm.store %memory, %slot : !llvm.ptr, !llvm.ptr
        llvm.store %new_room, %room_p : i64, !llvm.ptr
        llvm.return %memory : !llvm.ptr
      }}"""


def _tick(counter: str) -> str:
    return f"""
      llvm.func internal @{TICK}(%profile: !llvm.ptr, %slot: i64) attributes {{no_inline}} {{
        %null = llvm.mlir.zero : !llvm.ptr
        %off = llvm.icmp "eq" %profile, %null : !llvm.ptr
        llvm.cond_br %off, ^done, ^record
      ^record:
        %ticks = llvm.call_intrinsic "{counter}"() : () -> i64
        %place = llvm.getelementptr %profile[%slot] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        llvm.store %ticks, %place : i64, !llvm.ptr
        llvm.br ^done
      ^done:
        llvm.return
      }}"""


_SLOT = f"""
      llvm.func internal @{SLOT}(%slot: !llvm.ptr) -> !llvm.ptr {{
        %memory = llvm.load %slot : !llvm.ptr -> !llvm.ptr
        llvm.return %memory : !llvm.ptr
      }}"""


_CHECK = f"""
      llvm.func internal @{CHECK}(%record: !llvm.ptr, %value: i64, %most: i64, %number: i64) -> i1 {{
        %zero = llvm.mlir.constant(0 : i64) : i64
        %below = llvm.icmp "slt" %value, %zero : i64
        %above = llvm.icmp "sgt" %value, %most : i64
        %failed = llvm.or %below, %above : i1
        llvm.cond_br %failed, ^report, ^done
      ^report:
        %minus = llvm.mlir.constant(-1 : i64) : i64
        %code = llvm.sub %minus, %number : i64
        llvm.store %code, %record : i64, !llvm.ptr
        %second = llvm.getelementptr %record[1] : (!llvm.ptr) -> !llvm.ptr, i64
        llvm.store %value, %second : i64, !llvm.ptr
        llvm.br ^done
      ^done:
        llvm.return %failed : i1
      }}"""


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
