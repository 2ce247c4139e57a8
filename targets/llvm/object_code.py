"""Machine code of one unit: functions over buffers, through the LLVM dialect, to an object file for this host.

The functions that `outline-parallel` declares get bodies: each runs its region on the run time's thread pool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import ENTRY_NAME, symbol_name
from mirlo.dialects.core.value import create
from mirlo.passes.made_by import RULE
from mirlo.passes.memory.names import FORK, SIZES_SUFFIX
from mirlo.passes.registry import PassError
from mirlo.runtime.names import PARALLEL
from mirlo.runtime.records import dataclass
from mirlo.targets.host import runtime_calls
from mirlo.targets.llvm import packed
from mirlo.targets.llvm.intrinsics.dot_instructions import missing_dot_instruction
from mirlo.targets.llvm.intrinsics.x86 import missing_instruction
from mirlo.targets.llvm.loop_annotations import mark_once
from mirlo.targets.llvm.machine_code import DIALECT, CodeSettings, generate, generate_from
from mirlo.targets.llvm.pipeline import lower_to_llvm
from mirlo.targets.llvm.processor import Processor
from mirlo.targets.llvm_guard import make_guarded, suspects_in_text


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


ENTRY = "mirlo_entry"
MAIN = ENTRY_NAME
SIZES = MAIN + SIZES_SUFFIX


@dataclass(frozen=True)
class EntryInterface:
    """The arguments that the entry function of a model passes to `main`, whose pointers it loads from tables."""

    tensors: int
    params: int
    packed: tuple[str, ...]
    """Run-time functions, in the order of their pointers."""
    profiled: bool
    """Whether `main` takes a profile, its last argument, which may be null."""
    allocator: int | None = None
    """The word of the call record with the allocation function, for data-dependent sizes."""

    @property
    def has_record(self) -> bool:
        """Return whether `main` takes the call record."""
        return bool(self.packed) or self.allocator is not None


def compile_text(
    text: str, settings: CodeSettings, entry: EntryInterface | None = None, lowered: dict[object, str] | None = None
) -> bytes:
    """Compile the text of a unit, parsed in the current context, to an object file or another form of code.

    `lowered` has LLVM IR by what it was lowered from, and receives that of the unit.
    """
    source = (text, settings.processor, entry)
    if lowered is not None and settings.form != DIALECT and source in lowered:
        return generate_from(lowered[source], settings)
    lacked = missing_instruction(text, settings.processor) or missing_dot_instruction(text, settings.processor)
    if lacked is not None:
        # Marked by `check_emitted`: the rule of a user that emitted it.
        rule = re.search(rf'"{re.escape(lacked[0])}".*{re.escape(RULE)} = "([^"]*)"', text)
        by = f"; rule '{rule.group(1)}' emitted it" if rule else ""
        raise PassError(
            f"LLVM has no instruction for '{lacked[0]}' on '{settings.processor.cpu}', which lacks {lacked[1]}: the "
            "kernel was made for another machine; leave out the option 'machine' of passes, or name that of the target"
            f"{by}"
        )
    with ir.Location.unknown():
        module = ir.Module.parse(text)
        keep = None if lowered is None else partial(lowered.__setitem__, source)
        make = partial(compile_module, module, settings, entry, text, keep)
        return make_guarded(module.operation, suspects_in_text(text), make)


def compile_module(
    module: ir.Module, settings: CodeSettings, entry: EntryInterface | None = None, text: str = "",
    keep: Callable[[str], object] | None = None,
) -> bytes:  # fmt: skip
    """Compile a module, which is consumed; `entry` is given for the module with `main`, `text` if it was parsed.

    `keep` is called with its LLVM IR, before LLVM optimizes it.
    """
    lower_module(module, settings.processor, entry, text)
    return generate(module, settings, keep)


def lower_module(module: ir.Module, processor: Processor, entry: EntryInterface | None = None, text: str = "") -> None:
    """Lower a module to the LLVM dialect for code generation, with the entry function."""
    forks = find_forks(module)
    calls = packed.find_calls(module, entry.packed) if entry is not None else []
    exported = _public(module)
    _lower(module, processor, entry is not None, text)
    define_forks(module, forks, argument_types(module, forks))
    _internalize(module, exported)
    if entry is not None:
        packed.define_calls(module, calls, MAIN)
        runtime_calls.define(module, MAIN, entry.allocator, processor.counter)
        runtime_calls.end_where_interrupted(module, MAIN)
        _add_entry(module, entry)
        exported = {ENTRY: None}
        _internalize(module, exported)
        mark_once(module)


def _lower(module: ir.Module, processor: Processor, calls_kernels: bool, text: str) -> None:
    try:
        # Verification after each of this many passes takes longer than the passes; the LLVM module is verified below.
        lower_to_llvm(module, processor, verify=False, calls_kernels=calls_kernels, text=text)
        module.operation.verify()
    except ir.MLIRError as error:
        raise PassError(f"lowering to the LLVM dialect failed: {error}") from error
    noinline, tuned_for = ir.UnitAttr.get(), ir.StringAttr.get(processor.cpu)
    for op in module.body.operations:
        if op.operation.name == "llvm.func":
            # Kernels keep their own symbols: for profilers, and because inlining each into main only costs time.
            op.operation.attributes["no_inline"] = noinline
            op.operation.attributes["tune_cpu"] = tuned_for


def _public(module: ir.Module) -> dict[str, None]:
    """Return the functions that the rest of the model calls, in order."""
    functions = [op.operation for op in module.body.operations if op.operation.name in ("func.func", "llvm.func")]
    defined = [function for function in functions if len(function.regions[0].blocks)]
    public = [function for function in defined if "sym_visibility" not in function.attributes] or defined[:1]
    if not public:
        raise PassError("the unit has no function to compile")
    return dict.fromkeys(map(symbol_name, public))


def _internalize(module: ir.Module, exported: Container[str]) -> None:
    """Make functions without external callers private: LLVM drops those that it inlines."""
    internal = ir.Attribute.parse("#llvm.linkage<internal>")
    for op in module.body.operations:
        attributes = op.operation.attributes
        if op.operation.name != "llvm.func" or not len(op.operation.regions[0].blocks):
            continue
        if symbol_name(op) not in exported:
            attributes["linkage"] = internal


def _add_entry(module: ir.Module, entry: EntryInterface) -> None:
    """Add `entry(tensors**, params**, arena*, profile*)`, which calls main. The profile is null where none is wanted.

    Without tensors it computes sizes: `arena` is then the call record.
    """
    for op in list(module.body.operations):
        if op.operation.name == "llvm.func" and symbol_name(op) == MAIN:
            _unpack(op.operation, entry)
    names = ["%tensors", "%params", "%arena", *(["%profile"] if entry.profiled else [])]
    pointers = ", ".join(["!llvm.ptr"] * len(names))
    declarations = f"llvm.func @{MAIN}({pointers})\n"
    ending = f"llvm.call @{MAIN}({', '.join(names)}) : ({pointers}) -> ()\nllvm.return"
    if entry.allocator is not None:
        declarations += f"llvm.func @{SIZES}(!llvm.ptr)\n"
        ending = f"""%nothing = llvm.mlir.zero : !llvm.ptr
        %asks = llvm.icmp "eq" %tensors, %nothing : !llvm.ptr
        llvm.cond_br %asks, ^sizes, ^run
      ^sizes:
        llvm.call @{SIZES}(%arena) : (!llvm.ptr) -> ()
        llvm.return
      ^run:
        {ending}"""
    text = f"""{declarations}
      llvm.func @{ENTRY}(%tensors: !llvm.ptr, %params: !llvm.ptr, %arena: !llvm.ptr, %profile: !llvm.ptr) {{
        {ending}
      }}"""
    new_module = ir.Module.parse(text)
    for op in list(new_module.body.operations):
        if symbol_name(op) == ENTRY:
            module.body.append(op.operation.clone())


def _unpack(function: ir.Operation, entry: EntryInterface) -> None:
    """Make a function take the tables of pointers instead of the pointers, which it loads where they are used.

    LLVM's time for arguments on the stack grows with the square of their number.
    """
    block = function.regions[0].blocks[0]
    taken = list(block.arguments)
    pointer = ir.Type.parse("!llvm.ptr")
    tensors, params, arena, *profile = [
        block.add_argument(pointer, function.location) for _ in range(4 if entry.profiled else 3)
    ]
    sources = [(tensors, i, True) for i in range(entry.tensors)] + [(params, i, True) for i in range(entry.params)]
    if entry.packed:
        # The function pointers follow the weights; the call record follows the outputs.
        sources.append((params, entry.params, False))
    if entry.has_record:
        sources.append((tensors, entry.tensors, True))
    for argument, (table, position, is_loaded) in zip(taken, sources, strict=False):
        for use in list(argument.uses):
            user, number = use.owner, use.operand_number
            with ir.InsertionPoint(user), function.location:
                user.operation.operands[number] = _entry_of(table, position, is_loaded)
    for argument, replacement in zip(taken[len(sources) :], [arena, *profile], strict=True):
        argument.replace_all_uses_with(replacement)
    for number in reversed(range(len(taken))):
        block.erase_argument(number)
    arguments = ", ".join(["ptr"] * len(block.arguments))
    function.attributes["function_type"] = ir.TypeAttr.get(ir.Type.parse(f"!llvm.func<void ({arguments})>"))
    if "arg_attrs" in function.attributes:
        del function.attributes["arg_attrs"]


def _entry_of(table: ir.Value, position: int, is_loaded: bool) -> ir.Value:
    """Return the address of an entry in a table of pointers, or the pointer there."""
    pointer = table.type
    address = create(
        "llvm.getelementptr", pointer, table, elem_type=ir.TypeAttr.get(pointer),
        rawConstantIndices=ir.DenseI32ArrayAttr.get([position]),
        noWrapFlags=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 0),
    )  # fmt: skip
    return create("llvm.load", pointer, address) if is_loaded else address
