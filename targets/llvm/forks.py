"""Bodies of the functions that `outline-parallel` declares: each runs its region on the run time's thread pool."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.memory.names import FORK
from mirlo.runtime.names import PARALLEL
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Fork:
    """A declared function, and the parallel region that it runs."""

    name: str
    region: str
    chunks: int
    threads: int
    least: int
    """Iterations from which threads share them."""


def find_forks(module: ir.Module) -> list[Fork]:
    """Find the forks of a module that is not yet lowered to the LLVM dialect."""
    forks = []
    for op in module.body.operations:
        attributes = op.operation.attributes
        if FORK not in attributes:
            continue
        entry = ir.DictAttr(attributes[FORK])
        numbers = {key: ir.IntegerAttr(entry[key]).value for key in ("chunks", "threads", "least")}
        region = ir.FlatSymbolRefAttr(entry["region"]).value
        forks.append(Fork(symbol_name(op), region, **numbers))
    return forks


def define_forks(module: ir.Module, forks: list[Fork], types: dict[str, list[str]]) -> None:
    """Define the body of each fork, in the LLVM dialect. `types` are the types of the forks' arguments, by name."""
    if not forks:
        return
    by_name = {symbol_name(op): op for op in module.body.operations}
    for fork in forks:
        by_name[fork.name].operation.erase()
    text = f"llvm.func @{PARALLEL}(!llvm.ptr, !llvm.ptr, i32, i32)\n"
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

    It stores its arguments in an array; the thunk loads them and runs its part of the range. Chunks of one iteration
    and of two would be unbalanced, so few iterations are a chunk each.
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
        %one = llvm.mlir.constant(1 : i64) : i64
        %least = llvm.mlir.constant({fork.least} : i64) : i64
        %most = llvm.mlir.constant({fork.chunks} : i64) : i64
        %twice = llvm.mlir.constant({2 * fork.chunks} : i64) : i64
        %is_little = llvm.icmp "slt" %a0, %least : i64
        %is_few = llvm.icmp "sle" %a0, %twice : i64
        %several = llvm.select %is_few, %a0, %most : i1, i64
        %wanted = llvm.select %is_little, %one, %several : i1, i64
        %chunks = llvm.trunc %wanted : i64 to i32
        %threads = llvm.mlir.constant({fork.threads} : i32) : i32
        llvm.call @{PARALLEL}(%part, %box, %chunks, %threads) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
        llvm.return
      }}"""


def _part_text(fork: Fork, types: list[str], loads: str) -> str:
    """Return the text of the thunk that runs one part of the range, after the loads of its arguments."""
    rest = "".join(f", %a{i}" for i in range(1, len(types)))
    kinds = ", ".join(["i64", *types])
    return f"""
      llvm.func @{fork.region}({kinds})
      llvm.func internal @{fork.name}_part(%box: !llvm.ptr, %chunk: i32, %chunks: i32) {{
        {loads}
        %one = llvm.mlir.constant(1 : i64) : i64
        %i = llvm.sext %chunk : i32 to i64
        %n = llvm.sext %chunks : i32 to i64
        %next = llvm.add %i, %one : i64
        %from = llvm.mul %a0, %i : i64
        %to = llvm.mul %a0, %next : i64
        %first = llvm.sdiv %from, %n : i64
        %end = llvm.sdiv %to, %n : i64
        llvm.call @{fork.region}(%first, %end{rest}) : ({kinds}) -> ()
        llvm.return
      }}"""
