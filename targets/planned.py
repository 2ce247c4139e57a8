"""The interface of a planned module for all emitters: its signature, the rows of its profile, ticks and polls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypedDict

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.value import index
from mirlo.dialects.tir.buffers import UNBOUNDED
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.entry import PLANNED, find_entry
from mirlo.passes.fuse.kinds import KIND
from mirlo.passes.locations import describe, names_of
from mirlo.passes.lower.work import flops_of, moved_bytes
from mirlo.passes.memory import packed
from mirlo.passes.memory.names import ALIAS, ALLOCATE, CHECK, GROW, GUARD, PAGES, POLL, SLOT, TICK, WINDOW
from mirlo.passes.memory.symbols import CHECKS, LATE, MAX_SHOWN_DIMS, SIZES, SYMBOLS
from mirlo.passes.memory.timeline import REGIONS
from mirlo.passes.registry import PassError
from mirlo.passes.schedule.buffers import CYCLES, SCHEDULE
from mirlo.runtime.artifact import KernelInfo, TensorSpec


def planned_entry(module: ir.Module | ir.OpView) -> ir.Operation:
    """Return the function of the model; raise an error if its memory is not planned."""
    entry = find_entry(module)
    if PLANNED not in entry.attributes:
        raise PassError("the module is not planned: run plan-memory before emitting code", entry.location)
    return entry


class ModelSignature(TypedDict):
    """The tensors of a model and the bytes of its arena."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    params: tuple[TensorSpec, ...]
    arena: int


def signature_of(main: ir.Operation) -> ModelSignature:
    """Return the signature of the model: `inputs`, `outputs`, `params`, and the bytes of its `arena`."""
    inputs = ir.IntegerAttr(main.attributes[PLANNED]).value
    outputs = ir.IntegerAttr(main.attributes["relax.outputs"]).value
    specs = []
    arena = 0
    weights = inputs + outputs
    for argument, entry in zip(
        main.regions[0].blocks[0].arguments, ir.ArrayAttr(main.attributes["arg_attrs"]), strict=True
    ):
        attributes = ir.DictAttr(entry)
        if "relax.arena" in attributes:
            size = argument.type.shape[0]
            arena = 0 if size == UNBOUNDED else size
        if not any(key in attributes for key in ("relax.name", "relax.param")):
            continue
        key = "relax.name" if "relax.name" in attributes else "relax.param"
        tensor = TensorType.from_mlir(ir.TypeAttr(attributes["relax.type"]).value)
        assert tensor is not None
        dims = tuple(dim if isinstance(dim, int) else str(dim) for dim in tensor.shape)
        specs.append(TensorSpec(ir.StringAttr(attributes[key]).value, tensor.dtype.name, dims))
    return {
        "inputs": tuple(specs[:inputs]),
        "outputs": tuple(specs[inputs : inputs + outputs]),
        "params": tuple(specs[weights:]),
        "arena": arena,
    }


def cpu_facts(main: ir.Operation, module: ir.Module | ir.OpView) -> dict[str, Any]:
    """Return the metadata of an artifact whose code runs on the CPU: its calls of packed functions pass the record."""
    facts = run_time_facts(main, module)
    return {**facts, packed.PASSES_RECORD: True} if "packed" in facts else facts


def run_time_facts(main: ir.Operation, module: ir.Module | ir.OpView) -> dict[str, Any]:
    """Return the metadata of an artifact about dynamic sizes, run-time functions and aliases."""
    facts: dict[str, bool | list[str]] = {
        key.removeprefix("relax."): [ir.StringAttr(text).value for text in ir.ArrayAttr(main.attributes[key])]
        for key in (SYMBOLS, SIZES, CHECKS, MAX_SHOWN_DIMS, LATE) if key in main.attributes
    }  # fmt: skip
    names = (symbol_name(op) for op in module.body.operations if op.operation.name == "func.func")
    if facts and not {ALLOCATE, GROW}.isdisjoint(names):
        facts["allocates"] = True
    functions = packed.names_called(main)
    aliases = {name: ir.StringAttr(value).value for name, value in _argument_facts(main, ALIAS)}
    windows = {name: ir.IntegerAttr(value).value for name, value in _argument_facts(main, WINDOW)}
    pages = {name: ir.StringAttr(value).value for name, value in _argument_facts(main, PAGES)}
    named = {"packed": functions, "aliases": aliases, "windows": windows, "pages": pages}
    return {**facts, **{name: fact for name, fact in named.items() if fact}}


def _argument_facts(main: ir.Operation, key: str) -> Iterator[tuple[str, ir.Attribute]]:
    """Yield the names and values of the arguments that have an attribute.

    `ALIAS`, of an output, names the input whose memory it may have; `WINDOW`, of a ring of rows, its tokens; `PAGES`
    the role of an input in attention with caches in pages.
    """
    for item in ir.ArrayAttr(main.attributes["arg_attrs"]):
        entry = ir.DictAttr(item)
        if key in entry:
            yield ir.StringAttr(entry["relax.name"]).value, entry[key]


def calls_of(main: ir.Operation) -> list[ir.Operation]:
    """Return the operations with a row in a profile: calls, and control flow before the calls inside of it."""
    return list(_calls_in(main.regions[0].blocks[0]))


def _calls_in(block: ir.Block) -> Iterator[ir.Operation]:
    for op in block.operations:
        if _is_kernel_call(op.operation):
            yield op.operation
        elif GUARD in op.operation.attributes:
            yield from _calls_in(op.operation.regions[0].blocks[0])
        elif op.operation.name in REGIONS:
            yield op.operation
            yield from _calls_inside(op.operation)


def _calls_inside(op: ir.Operation) -> list[ir.Operation]:
    """Return the operations with a row inside of control flow."""
    return [call for block in _bodies(op) for call in _calls_in(block)]


def _bodies(op: ir.Operation) -> list[ir.Block]:
    """Return the blocks that control flow runs, without the condition of a loop."""
    return [block for region in list(op.regions)[op.name == "scf.while" :] for block in region.blocks]


def _is_kernel_call(op: ir.Operation) -> bool:
    return op.name == "func.call" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value not in (
        ALLOCATE,
        CHECK,
        GROW,
        SLOT,
        POLL,
        TICK,
    )


def kernel_rows(main: ir.Operation, module: ir.Module | ir.OpView) -> list[KernelInfo]:
    """Return a row per call, for profiles."""
    functions = {symbol_name(f): f.operation for f in module.body.operations}
    rows, by_callee = [], dict[str, KernelInfo]()
    for call in calls_of(main):
        source = ", ".join(names_of(call.location)) or describe(call.location)
        if call.name in REGIONS:
            rows.append(KernelInfo(call.name, source, "control", 0, 0, inside=len(_calls_inside(call))))
            continue
        callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        if callee not in by_callee:  # the types of operands are those of the function's parameters
            by_callee[callee] = _kernel_row(callee, functions[callee], [value.type for value in call.operands])
        rows.append(replace(by_callee[callee], source=source))
    return rows


def _kernel_row(symbol: str, function: ir.Operation, types: list[ir.Type]) -> KernelInfo:
    """Return the row of the calls of a function with operands of these types, without their nodes."""
    attributes, flops = function.attributes, flops_of(function)
    kind = ir.StringAttr(attributes[KIND]).value if KIND in attributes else ""
    if packed.TYPES in attributes:
        symbol, kind = ir.StringAttr(ir.ArrayAttr(attributes[packed.PACKED])[0]).value, "packed"
        types = types[2:]
    moved = sum(each for each in moved_bytes(function, types) if isinstance(each, int))
    return KernelInfo(symbol, "", kind, flops if isinstance(flops, int) else 0, moved, _expected_cycles(attributes))


def _expected_cycles(attributes: ir.OpAttributeMap) -> int:
    """Return the cycles that the schedule of a prim function expects; 0 where it has no estimate."""
    if SCHEDULE not in attributes:
        return 0
    schedule = ir.DictAttr(attributes[SCHEDULE])
    return int(ir.IntegerAttr(schedule[CYCLES]).value) if CYCLES in schedule else 0


def add_ticks(main: ir.Operation, module: ir.Module | ir.OpView, kernels: int) -> None:
    """Make main record ticks before the first call and after each, in a profile that is its last argument.

    Control flow records the last time when it enters a block with calls: so the calls of a loop are those of its last
    iteration (`runtime/profile.py`).
    """
    if not kernels:
        return
    profile_type = ir.MemRefType.get([kernels + 1], ir.IntegerType.get_signless(64))
    block = main.regions[0].blocks[0]
    calls = calls_of(main)
    profile = block.add_argument(profile_type, main.location)
    types = [argument.type for argument in block.arguments]
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    entries = [*ir.ArrayAttr(main.attributes["arg_attrs"]), ir.DictAttr.get({})]
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(entries)
    with main.location:
        kind = ir.FunctionType.get([profile_type, ir.IndexType.get()], [])
        declared = func.FuncOp(TICK, kind, visibility="private", ip=False)
        module.body.append(declared.operation)
        following = dict(_neighbours(main))
        for slot, call in enumerate(calls):
            if slot == 0:
                with ir.InsertionPoint(call):
                    _tick(profile, 0)
            entered = [block for block in _bodies(call) if any(_calls_in(block))] if call.name in REGIONS else []
            for block in entered:
                with ir.InsertionPoint.at_block_begin(block):
                    _tick(profile, slot + 1)
            parent = call.parent  # a call that is left out takes no time
            place = parent if parent is not None and GUARD in parent.attributes else call
            with ir.InsertionPoint(following[place.opview]):  # after a loop that was not entered, too
                _tick(profile, slot + 1 + (len(_calls_inside(call)) if entered else 0))


def add_polls(module: ir.Module | ir.OpView) -> bool:
    """Insert a check for interrupts in loops of unknown length; return whether there are such loops."""
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    loops = [loop for function in functions if not is_prim_func(function) for loop in _unbounded_loops(function)]
    if not loops:
        return False
    i1 = ir.IntegerType.get_signless(1)
    with module.operation.location:
        declared = func.FuncOp(POLL, ir.FunctionType.get([], [i1]), visibility="private", ip=False)
    module.body.append(declared.operation)
    for loop in loops:
        body = loop.regions[1].blocks[0]
        with ir.InsertionPoint(body.operations[len(body.operations) - 1]), loop.location:
            func.CallOp([i1], ir.FlatSymbolRefAttr.get(POLL), [])
    return True


def _unbounded_loops(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the loops of a planned function whose trip count is not known before they run."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name in REGIONS:
                    yield from _unbounded_loops(inner.operation)
                if inner.operation.name == "scf.while":
                    yield inner.operation


def _neighbours(op: ir.Operation | ir.OpView) -> Iterator[tuple[ir.OpView, ir.OpView]]:
    """Yield each operation inside of one, with the operation after it."""
    for region in op.operation.regions:
        for block in region.blocks:
            inside = list(block.operations)
            yield from pairwise(inside)
            for inner in inside:
                yield from _neighbours(inner)


def _tick(profile: ir.Value, slot: int) -> None:
    func.CallOp([], ir.FlatSymbolRefAttr.get(TICK), [profile, index(slot)])
