"""From a planned module to an artifact: the entry function, the LLVM dialect, object code."""

from __future__ import annotations

import ctypes
import os
import tempfile
from typing import Any

from mirlo.dialects.bindings import execution_engine, ir, memref, passmanager
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.fuse.kinds import KIND
from mirlo.passes.locations import describe, names_of
from mirlo.passes.memory.timeline import REGIONS
from mirlo.passes.registry import PassError
from mirlo.passes.schedule.schedule import FLOPS
from mirlo.runtime.artifact import Artifact, KernelInfo, TensorSpec
from mirlo.runtime.loaders import llvm_host
from mirlo.targets.llvm import packed
from mirlo.targets.llvm.forks import argument_types, define_forks, find_forks
from mirlo.targets.llvm.pipeline import lower_pipeline

ENTRY = "mirlo_entry"
MAIN = "main"
PROFILED = "main_profiled"


def emit(module: Any, threads: int = 1, opt_level: int = 2) -> Artifact:
    """Compile a module that went through the target's pipeline. The module is consumed."""
    main = _find_main(module)
    signature = _signature(main)
    kernels = _kernels(main, module)
    _add_profiled(main, len(kernels))
    forks = find_forks(module)
    functions = packed.names_called(main)
    calls = packed.find_calls(module, functions)
    _lower(module)
    define_forks(module, forks, argument_types(module, forks))
    packed.define_calls(module, calls, (MAIN, PROFILED))
    counts = [len(signature[name]) for name in ("inputs", "outputs", "params")]
    _add_entry(module, counts[0] + counts[1], counts[2], bool(functions), bool(kernels))
    code = _object_code(module, opt_level)
    return Artifact(
        target="llvm", loader="llvm", code=code, entry=ENTRY, inputs=signature["inputs"], outputs=signature["outputs"],
        params=signature["params"], arena_bytes=signature["arena"], kernels=tuple(kernels), threads=threads,
        metadata={**llvm_host(), **({"packed": functions} if functions else {})},
    )  # fmt: skip


def _find_main(module: Any) -> Any:
    for op in module.body.operations:
        if op.operation.name == "func.func" and not is_prim_func(op) and op.operation.regions[0].blocks:
            if "relax.inputs" not in op.operation.attributes:
                raise PassError(
                    "the module is not planned: run plan-memory before emitting code", op.operation.location
                )
            return op.operation
    raise PassError("the module has no function to compile")


def _signature(main: Any) -> dict[str, Any]:
    inputs = ir.IntegerAttr(main.attributes["relax.inputs"]).value
    outputs = ir.IntegerAttr(main.attributes["relax.outputs"]).value
    specs = []
    arena = 0
    for argument, entry in zip(
        main.regions[0].blocks[0].arguments, ir.ArrayAttr(main.attributes["arg_attrs"]), strict=True
    ):
        attributes = ir.DictAttr(entry)
        if "relax.arena" in attributes:
            arena = argument.type.shape[0]
        if not any(key in attributes for key in ("relax.name", "relax.param")):
            continue
        key = "relax.name" if "relax.name" in attributes else "relax.param"
        tensor = TensorType.from_mlir(ir.TypeAttr(attributes["relax.type"]).value)
        assert tensor is not None
        specs.append(TensorSpec(ir.StringAttr(attributes[key]).value, tensor.dtype.name, tensor.static_shape))
    return {
        "inputs": tuple(specs[:inputs]),
        "outputs": tuple(specs[inputs : inputs + outputs]),
        "params": tuple(specs[inputs + outputs :]),
        "arena": arena,
    }


def _calls(main: Any) -> list[Any]:
    """What has a row in a profile: calls, and control flow as a whole."""
    operations = [op.operation for op in main.regions[0].blocks[0].operations]
    return [op for op in operations if op.name == "func.call" or op.name in REGIONS]


def _kernels(main: Any, module: Any) -> list[KernelInfo]:
    """A row per call, for profiles."""
    functions = {ir.StringAttr(f.operation.attributes["sym_name"]).value: f.operation for f in module.body.operations}
    found = []
    for call in _calls(main):
        source = ", ".join(names_of(call.location)) or describe(call.location)
        if call.name in REGIONS:
            found.append(KernelInfo(symbol=call.name, source=source, kind="control", flops=0, bytes=0))
            continue
        symbol = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        attributes = functions[symbol].attributes
        operands = list(call.operands)
        kind = ir.StringAttr(attributes[KIND]).value if KIND in attributes else ""
        if packed.TYPES in attributes:
            symbol, kind = ir.StringAttr(ir.ArrayAttr(attributes[packed.PACKED])[0]).value, "packed"
            operands = operands[2:]
        flops = ir.IntegerAttr(attributes[FLOPS]).value if FLOPS in attributes else 0
        moved = sum(_bytes(v.type) for v in operands)
        found.append(KernelInfo(symbol=symbol, source=source, kind=kind, flops=flops, bytes=moved))
    return found


def _bytes(kind: Any) -> int:
    from mirlo.passes.schedule.buffers import buffer_bytes

    return buffer_bytes(kind) if isinstance(kind, ir.MemRefType) else 0


def _add_profiled(main: Any, kernels: int) -> None:
    """A copy of main that also records the CPU's tick counter before the first call and after each."""
    if not kernels:
        return
    i64 = ir.IntegerType.get_signless(64)
    slots = ir.MemRefType.get([kernels + 1], i64)
    copy = main.clone(ip=ir.InsertionPoint(main))
    copy.attributes["sym_name"] = ir.StringAttr.get(PROFILED)
    block = copy.regions[0].blocks[0]
    profile = block.add_argument(slots, main.location)
    types = [argument.type for argument in block.arguments]
    copy.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    entries = [*ir.ArrayAttr(copy.attributes["arg_attrs"]), ir.DictAttr.get({})]
    copy.attributes["arg_attrs"] = ir.ArrayAttr.get(entries)
    calls = _calls(copy)
    with main.location:
        for slot, call in enumerate(calls):
            if slot == 0:
                with ir.InsertionPoint(call):
                    _tick(profile, 0)
            after = list(call.block.operations)
            following = after[after.index(call.opview) + 1]
            with ir.InsertionPoint(following):
                _tick(profile, slot + 1)


def _tick(profile: Any, slot: int) -> None:
    i64 = ir.IntegerType.get_signless(64)
    ticks = ir.Operation.create(
        "llvm.call_intrinsic",
        results=[i64],
        attributes={
            "intrin": ir.StringAttr.get("llvm.readcyclecounter"),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0]),
        },
    ).results[0]
    from mirlo.passes.schedule.loops import index

    memref.StoreOp(ticks, profile, [index(slot)])


def _lower(module: Any) -> None:
    try:
        passmanager.PassManager.parse(lower_pipeline()).run(module.operation)
    except ir.MLIRError as error:
        raise PassError(f"lowering to the LLVM dialect failed: {error}") from error
    noinline = ir.UnitAttr.get()
    for op in module.body.operations:
        if op.operation.name == "llvm.func":
            # Kernels keep their own symbols: for profilers, and because inlining each into main only costs time.
            op.operation.attributes["no_inline"] = noinline


def _add_entry(module: Any, tensors: int, params: int, packed_calls: bool, profiled: bool) -> None:
    """`entry(tensors**, params**, arena*, profile*)`: unpacks the pointers and calls main."""
    lines = []
    values = []
    for base, count in (("tensors", tensors), ("params", params)):
        for i in range(count):
            lines.append(f"%{base}_p{i} = llvm.getelementptr %{base}[{i}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr")
            lines.append(f"%{base}_{i} = llvm.load %{base}_p{i} : !llvm.ptr -> !llvm.ptr")
            values.append(f"%{base}_{i}")
    if packed_calls:
        # The pointers of the functions follow the weights; the call record follows the outputs.
        lines.append(f"%functions = llvm.getelementptr %params[{params}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr")
        lines.append(f"%record_p = llvm.getelementptr %tensors[{tensors}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr")
        lines.append("%record = llvm.load %record_p : !llvm.ptr -> !llvm.ptr")
        values += ["%functions", "%record"]
    values.append("%arena")
    pointers = ", ".join(["!llvm.ptr"] * len(values))
    plain = f"llvm.call @{MAIN}({', '.join(values)}) : ({pointers}) -> ()\nllvm.return"
    declarations = f"llvm.func @{MAIN}({pointers})\n"
    ending = plain
    if profiled:
        declarations += f"llvm.func @{PROFILED}({pointers}, !llvm.ptr)\n"
        ending = f"""%null = llvm.mlir.zero : !llvm.ptr
          %off = llvm.icmp "eq" %profile, %null : !llvm.ptr
          llvm.cond_br %off, ^plain, ^profiled
        ^plain:
          {plain}
        ^profiled:
          llvm.call @{PROFILED}({", ".join(values)}, %profile) : ({pointers}, !llvm.ptr) -> ()
          llvm.return"""
    body = "\n".join(lines)
    text = f"""{declarations}
      llvm.func @{ENTRY}(%tensors: !llvm.ptr, %params: !llvm.ptr, %arena: !llvm.ptr, %profile: !llvm.ptr) {{
        {body}
        {ending}
      }}"""
    made = ir.Module.parse(text)
    for op in list(made.body.operations):
        if op.operation.attributes["sym_name"] == ir.StringAttr.get(ENTRY):
            module.body.append(op.operation.clone())


_NEVER_CALLED = ctypes.CFUNCTYPE(None)(lambda: None)


def _externals(module: Any) -> list[str]:
    """Functions that the module declares but does not define."""
    return [
        ir.StringAttr(op.operation.attributes["sym_name"]).value
        for op in module.body.operations
        if op.operation.name == "llvm.func" and not len(op.operation.regions[0].blocks)
    ]


def _object_code(module: Any, opt_level: int) -> bytes:
    """Machine code of this host, as an object file."""
    handle, path = tempfile.mkstemp(suffix=".o")
    os.close(handle)
    try:
        externals = _externals(module)
        engine = execution_engine.ExecutionEngine(module, opt_level=opt_level)
        for name in externals:
            # The engine links what it compiles; the real functions are found when the object is loaded.
            engine.raw_register_runtime(name, ctypes.cast(_NEVER_CALLED, ctypes.c_void_p))
        # Looking a symbol up makes the engine compile; without it the object is empty.
        engine.raw_lookup(ENTRY)
        engine.dump_to_object_file(path)
        with open(path, "rb") as file:
            return file.read()
    except RuntimeError as error:
        raise PassError(f"LLVM made no code: {error}") from error
    finally:
        os.unlink(path)
