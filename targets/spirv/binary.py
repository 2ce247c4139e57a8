"""Translation of kernels from upstream dialects to SPIR-V binaries."""

from __future__ import annotations

from mirlo.dialects.bindings import gpu, ir
from mirlo.dialects.core.surgery import enclosing
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.walk import walk
from mirlo.passes.lower.calls import find
from mirlo.passes.registry import PassError
from mirlo.passes.upstream import run_unverified
from mirlo.targets.emulated_floats import emulate_floats
from mirlo.targets.gpu.copies import expand_copies
from mirlo.targets.gpu.kernels import KernelCode, shared_bytes
from mirlo.targets.gpu.narrow_indices import saturate_indices
from mirlo.targets.spirv.arguments import convert_arguments
from mirlo.targets.spirv.bf16 import EMULATE, convert_by_f32, store_as_bits
from mirlo.targets.spirv.comparisons import compare_unextended
from mirlo.targets.spirv.ended_loops import REPORTS, report_ended_loops
from mirlo.targets.spirv.environment import VULKAN, SpirvEnvironment
from mirlo.targets.spirv.fma import expand_fma
from mirlo.targets.spirv.narrow_types import check_floats, widen_arithmetic
from mirlo.targets.spirv.rounding import expand_rounding
from mirlo.targets.spirv.wide_integers import EMULATE_WIDE, split_wide

_SIMPLIFY = (
    "gpu.module(arith-expand{include-bf16=true},expand-strided-metadata,lower-affine,canonicalize,cse,"
    "map-memref-spirv-storage-class{client-api=vulkan},fold-memref-alias-ops,canonicalize,cse)"
)
_TO_SPIRV = (
    "gpu.module(gpu.func(convert-math-to-spirv))",
    "convert-gpu-to-spirv{use-64bit-index=0}",
    "spirv.module(spirv-lower-abi-attrs,canonicalize,cse,spirv-update-vce)",
)


def to_binaries(module: ir.Module | ir.OpView, environment: SpirvEnvironment = VULKAN) -> list[KernelCode]:
    """Return a binary for each kernel of a module. Host functions are dropped, and the module is consumed."""
    shared = {symbol_name(op): shared_bytes(op) for op in _modules(module, "gpu.module")}
    features = {name: _capabilities(shader) for name, shader in lower_to_spirv(module, environment).items()}
    if not features:
        return []
    reporting = {symbol_name(op) for op in _modules(module, "gpu.module") if REPORTS in op.attributes}
    _nest(module)
    _run(module, "gpu-module-to-binary")
    binaries = []
    for binary in _modules(module, "gpu.binary"):
        name = symbol_name(binary)
        entry, capabilities_used = features[name]
        data = gpu.ObjectAttr(ir.ArrayAttr(binary.attributes["objects"])[0]).object
        binaries.append(KernelCode(
            f"{name}::{entry}", entry, data, capabilities_used, shared.get(name, 0), reports=name in reporting
        ))  # fmt: skip
    return binaries


def lower_to_spirv(module: ir.Module | ir.OpView, environment: SpirvEnvironment = VULKAN) -> dict[str, ir.Operation]:
    """Lower the kernels of a module to the SPIR-V dialect; return the shaders by the names of their modules."""
    _remove_unused_functions(module)
    expand_copies(find(module, "memref.copy"))
    convert_arguments(module)
    if environment.reads_reports:
        report_ended_loops(module)
    expand_fma(module)
    expand_rounding(module)
    saturate_indices(module)
    kernels = _modules(module, "gpu.module")
    if not kernels:
        return {}
    convert_by_f32(module)
    _run(module, f"gpu.module({EMULATE})")
    store_as_bits(module, ir.BF16Type.get())
    _inline_scopes(module)
    _localize_private(module)
    _order_all_memory(module)
    module.operation.attributes["spirv.target_env"] = ir.Attribute.parse(environment.attribute())
    _run(module, f"{environment.attach()},{_SIMPLIFY}")
    compare_unextended(module)
    _emulate(module, environment)
    _run(module, ",".join(_TO_SPIRV), verify=True)
    _forbid_contraction(module)
    _empty_continues(module)
    shaders = _modules(module, "spirv.module")
    return {symbol_name(op).removeprefix("__spv__"): op for op in shaders}


def _emulate(module: ir.Module | ir.OpView, environment: SpirvEnvironment) -> None:
    """Replace operations on types that the environment lacks."""
    check_floats(module, environment)
    if environment.lacks("Float16"):
        emulate_floats(module, ("f16",))
        store_as_bits(module, ir.F16Type.get())
    if environment.lacks("Int64"):
        split_wide(module)
        _run(module, f"gpu.module({EMULATE_WIDE})")
    if environment.lacks("Int8"):
        # Last: upstream's canonical form has the fewest bits.
        widen_arithmetic(module)


def _modules(module: ir.Module | ir.OpView, kind: str) -> list[ir.Operation]:
    return [op.operation for op in module.body.operations if op.operation.name == kind]


def _run(module: ir.Module | ir.OpView, passes: str, verify: bool = False) -> None:
    try:
        run_unverified(f"builtin.module({passes})", module.operation)
        if verify:
            module.operation.verify()
    except ir.MLIRError as error:
        reasons = "; ".join(dict.fromkeys(d.message for d in error.error_diagnostics)) or str(error)
        raise PassError(f"conversion to SPIR-V failed: {reasons}") from error


def _remove_unused_functions(module: ir.Module | ir.OpView) -> None:
    for op in [o.operation for o in module.body.operations][::-1]:
        if op.name != "gpu.module":
            op.erase()
    for function in find(module, "gpu.func"):
        size = list(ir.DenseI32ArrayAttr(function.attributes["known_block_size"]))
        function.attributes["spirv.entry_point_abi"] = ir.Attribute.parse(
            f"#spirv.entry_point_abi<workgroup_size = {size}>"
        )


def _order_all_memory(module: ir.Module | ir.OpView) -> None:
    """Make barriers order accesses to buffers, not only to shared memory."""
    scope = ir.Attribute.parse("#spirv.scope<Workgroup>")
    semantics = ir.Attribute.parse("#spirv.memory_semantics<AcquireRelease|UniformMemory|WorkgroupMemory>")
    names = ("execution_scope", "memory_scope", "memory_semantics")
    attributes = dict(zip(names, (scope, scope, semantics), strict=True))
    for barrier in find(module, "gpu.barrier"):
        with ir.InsertionPoint(barrier), barrier.location:
            ir.Operation.create("spirv.ControlBarrier", attributes=attributes)
        barrier.erase()


def _inline_scopes(module: ir.Module | ir.OpView) -> None:
    """Put the memory of scopes at the start of their functions, and the other operations in place of the scopes."""
    for scope in find(module, "memref.alloca_scope"):
        owner = enclosing(scope, "gpu.func")
        *operations, last = [op.operation for op in scope.regions[0].blocks[0].operations]
        first = next(iter(owner.operation.regions[0].blocks[0].operations)).operation
        for op in operations:
            op.move_before(first if op.name == "memref.alloca" else scope)
        for result, value in zip(scope.results, last.operands, strict=True):
            result.replace_all_uses_with(value)
        scope.erase()


def _localize_private(module: ir.Module | ir.OpView) -> None:
    """Move private memory into the function of its thread."""
    space = ir.Attribute.parse("#spirv.storage_class<Function>")
    for alloca in find(module, "memref.alloca"):
        kind = alloca.results[0].type
        alloca.results[0].set_type(ir.MemRefType.get(kind.shape, kind.element_type, memory_space=space))


EXACT = frozenset(f"spirv.{name}" for name in ("FAdd", "FSub", "FMul", "FDiv", "FRem", "FNegate", "GL.Fma"))


def _forbid_contraction(module: ir.Module | ir.OpView) -> None:
    """Forbid reordering of floating-point arithmetic on every operation.

    Otherwise drivers may simplify it, which breaks rounding by adding and subtracting a large number, and error
    compensation.
    """
    unit = ir.UnitAttr.get()

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in EXACT:
            op.attributes["no_contraction"] = unit
        return ir.WalkResult.ADVANCE

    walk(module, visit)


def _empty_continues(module: ir.Module | ir.OpView) -> None:
    """Give each loop a separate continue block.

    MLIR's loops continue from their whole body. Mesa's drivers miscompile a loop that is left from within such a
    block.
    """
    for loop in find(module, "spirv.mlir.loop"):
        _, header, *_, body, _ = loop.regions[0].blocks
        last = list(body.operations)[-1].operation
        values = list(last.operands)
        following = body.create_after(*(value.type for value in values), arg_locs=[loop.location] * len(values))
        with loop.location:
            with ir.InsertionPoint(following):
                ir.Operation.create("spirv.Branch", operands=list(following.arguments), successors=[header])
            with ir.InsertionPoint(last):
                ir.Operation.create("spirv.Branch", operands=values, successors=[following])
        last.erase()


def _capabilities(shader: ir.Operation) -> tuple[str, tuple[str, ...]]:
    """Return the entry point of a shader and its capabilities."""
    entry = next(op.operation for op in shader.regions[0].blocks[0].operations if "EntryPoint" in op.operation.name)
    listed = str(shader.attributes["vce_triple"]).split("[")[1].split("]")[0]
    name = ir.FlatSymbolRefAttr(entry.attributes["fn"]).value
    return name, tuple(part.strip() for part in listed.split(",") if part.strip() not in ("", "Matrix"))


def _nest(module: ir.Module | ir.OpView) -> None:
    """Move shaders into the modules that they come from, where the serializer expects them."""
    by_name = {symbol_name(op): op for op in _modules(module, "gpu.module")}
    for shader in _modules(module, "spirv.module"):
        name = symbol_name(shader).removeprefix("__spv__")
        block = by_name[name].regions[0].blocks[0]
        for op in [o.operation for o in block.operations]:
            if op.name == "gpu.func":
                shader.move_before(op)
                op.erase()
