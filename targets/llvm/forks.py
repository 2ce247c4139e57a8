"""Bodies of the functions that `outline-parallel` declares: each runs its region on the run time's thread pool."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.memory.names import FORK
from mirlo.runtime.threads import SYMBOL


@dataclass(frozen=True)
class Fork:
    """A declared function, and the parallel region that it runs."""

    name: str
    region: str
    step: int
    chunks: int
    threads: int
    pointers: int


def find_forks(module: ir.Module) -> list[Fork]:
    """Find the forks of a module that is not yet lowered to the LLVM dialect."""
    forks = []
    for op in module.body.operations:
        attributes = op.operation.attributes
        if FORK not in attributes:
            continue
        entry = ir.DictAttr(attributes[FORK])
        kind = ir.TypeAttr(attributes["function_type"]).value
        numbers = {key: ir.IntegerAttr(entry[key]).value for key in ("step", "chunks", "threads")}
        name = symbol_name(op)
        region = ir.FlatSymbolRefAttr(entry["region"]).value
        forks.append(Fork(name, region, pointers=len(kind.inputs) - 2, **numbers))
    return forks


def define_forks(module: ir.Module, forks: list[Fork], types: dict[str, list[str]]) -> None:
    """Define the body of each fork, in the LLVM dialect. `types` are the types of the forks' arguments, by name."""
    if not forks:
        return
    by_name = {symbol_name(op): op for op in module.body.operations}
    for fork in forks:
        by_name[fork.name].operation.erase()
    text = f"llvm.func @{SYMBOL}(!llvm.ptr, !llvm.ptr, i32, i32)\n"
    text += "\n".join(_fork_text(fork, types[fork.name]) for fork in forks)
    new_module = ir.Module.parse(text)
    defined = {fork.region for fork in forks}
    for op in new_module.body.operations:
        if symbol_name(op) not in defined:
            module.body.append(op.operation.clone())


def argument_types(module: ir.Module, forks: list[Fork]) -> dict[str, list[str]]:
    """Return the LLVM types of the arguments of each fork, from its declaration in a lowered module."""
    names = {fork.name for fork in forks}
    types = {}
    for op in module.body.operations:
        name = symbol_name(op)
        if name in names:
            kind = str(ir.TypeAttr(op.operation.attributes["function_type"]).value)
            inner = kind[kind.index("(") + 1 : kind.rindex(")")]
            types[name] = ["!llvm.ptr" if part.strip() == "ptr" else part.strip() for part in inner.split(",")]
    return types


def _fork_text(fork: Fork, types: list[str]) -> str:
    """Return the text of a fork.

    It stores its arguments in an array; the thunk loads them and runs its part of the range.
    """
    count = len(types)
    stores, loads = [], []
    for i, kind in enumerate(types):
        place = f"llvm.getelementptr %box[{i}] : (!llvm.ptr) -> !llvm.ptr, i64"
        stores += [f"%p{i} = {place}", f"llvm.store %a{i}, %p{i} : {kind}, !llvm.ptr"]
        loads += [f"%p{i} = {place}", f"%a{i} = llvm.load %p{i} : !llvm.ptr -> {kind}"]
    arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(types))
    new_line = "\n        "
    return f"""{_part_text(fork, types, new_line.join(loads))}
      llvm.func internal @{fork.name}({arguments}) {{
        %count = llvm.mlir.constant({count} : i64) : i64
        %box = llvm.alloca %count x i64 : (i64) -> !llvm.ptr
        {new_line.join(stores)}
        %part = llvm.mlir.addressof @{fork.name}_part : !llvm.ptr
        %chunks = llvm.mlir.constant({fork.chunks} : i32) : i32
        %threads = llvm.mlir.constant({fork.threads} : i32) : i32
        llvm.call @{SYMBOL}(%part, %box, %chunks, %threads) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
        llvm.return
      }}"""


def _part_text(fork: Fork, types: list[str], loads: str) -> str:
    """Return the text of the thunk that runs one part of the range, after the loads of its arguments."""
    rest = "".join(f", %a{i}" for i in range(2, len(types)))
    kinds = ", ".join(types)
    return f"""
      llvm.func @{fork.region}({kinds})
      llvm.func internal @{fork.name}_part(%box: !llvm.ptr, %chunk: i32, %chunks: i32) {{
        {loads}
        %one = llvm.mlir.constant(1 : i64) : i64
        %step = llvm.mlir.constant({fork.step} : i64) : i64
        %last = llvm.mlir.constant({fork.step - 1} : i64) : i64
        %i = llvm.sext %chunk : i32 to i64
        %n = llvm.sext %chunks : i32 to i64
        %range = llvm.sub %a1, %a0 : i64
        %padded = llvm.add %range, %last : i64
        %trips = llvm.sdiv %padded, %step : i64
        %next = llvm.add %i, %one : i64
        %from = llvm.mul %trips, %i : i64
        %to = llvm.mul %trips, %next : i64
        %first = llvm.sdiv %from, %n : i64
        %end = llvm.sdiv %to, %n : i64
        %first_offset = llvm.mul %first, %step : i64
        %end_offset = llvm.mul %end, %step : i64
        %low = llvm.add %a0, %first_offset : i64
        %beyond = llvm.add %a0, %end_offset : i64
        %high = llvm.intr.smin(%beyond, %a1) : (i64, i64) -> i64
        llvm.call @{fork.region}(%low, %high{rest}) : ({kinds}) -> ()
        llvm.return
      }}"""
