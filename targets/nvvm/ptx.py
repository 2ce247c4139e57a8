"""Translation of kernels from upstream dialects to PTX.

MLIR translates them to LLVM IR; llvmlite's NVPTX back end makes PTX. Both end the process on unknown input, so
everything is checked first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain

from mirlo.dialects.bindings import ir, translate_to_llvm_ir
from mirlo.dialects.core.symbols import rename_symbol, symbol_name
from mirlo.dialects.core.value import call_intrinsic
from mirlo.dialects.core.walk import walk
from mirlo.passes.lower.calls import find_all, find_outermost
from mirlo.passes.made_by import RULE
from mirlo.passes.registry import PassError
from mirlo.passes.upstream import run_unverified
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.kernels import KernelCode
from mirlo.targets.gpu.narrow_indices import saturate_indices
from mirlo.targets.host.llvm_ir import llvmlite
from mirlo.targets.llvm_guard import is_translated, make_guarded, suspects_in
from mirlo.targets.llvm_text import readable_by_older
from mirlo.targets.nvvm.chips import Chip
from mirlo.targets.nvvm.entry import describe, pass_tensor_maps
from mirlo.targets.nvvm.libraries import DeviceLibrary, LlvmMachine, LlvmModule, link_bitcode, merge_ptx
from mirlo.targets.nvvm.positions import narrow_comparisons
from mirlo.targets.nvvm.sharing import allocate_shared, leave_to_launch

TRIPLE = "nvptx64-nvidia-cuda"
_INTRINSICS = re.compile(
    r"llvm\.(nvvm\.|fma|fmuladd|sqrt|fabs|floor|ceil|trunc|rint|nearbyint|roundeven|round|minnum|maxnum|minimum|maximum|"
    r"minimumnum|maximumnum|copysign|exp2|smin|smax|umin|umax|abs|ctlz|cttz|ctpop|bswap|bitreverse|fshl|fshr|assume|"
    r"expect|lifetime|is\.fpclass|scmp|ucmp|memcpy|memset|memmove|masked|vector\.|stacksave|stackrestore|[su](add|sub|mul)\.)"
)
"""LLVM intrinsics that the back end selects; any other would end the process."""

_TO_BRANCHES = "gpu.module(arith-expand,convert-nvgpu-to-nvvm,convert-scf-to-cf)"
_TO_NVVM = (
    "gpu.module(expand-strided-metadata,lower-affine,canonicalize,cse,"
    "loop-invariant-code-motion,convert-math-to-llvm,"
    "convert-gpu-to-nvvm{{use-bare-ptr-memref-call-conv=1 index-bitwidth={index}}},convert-vector-to-llvm,"
    "convert-nvvm-to-llvm,convert-ub-to-llvm,canonicalize,cse,reconcile-unrealized-casts)"
)


_WIDE = (
    "vector.load", "vector.store", "nvgpu.ldmatrix", "nvgpu.device_async_copy", "nvvm.mma.sync", "nvvm.wgmma.mma_async",
    "nvvm.mbarrier.init",
)  # fmt: skip
"""Operations whose conversions support 64-bit indices only."""


@dataclass(frozen=True)
class LoweredKernels:
    """The kernels of a module in the LLVM dialect, in one `gpu.module`."""

    whole: ir.Operation
    names: dict[str, str]
    """Their functions, by the names that launches use."""
    shared: dict[str, int]
    """Bytes of dynamic shared memory, by function."""

    def functions(self) -> dict[str, ir.Operation]:
        """Return the operations of the kernels by their symbols."""
        own = [op.operation for op in self.whole.regions[0].blocks[0].operations]
        by_name = {symbol_name(op): op for op in own if op.name == "llvm.func"}
        return {name: op for name, op in by_name.items() if name in self.names.values()}


def to_ptx(
    module: ir.Module,
    chip: Chip,
    opt_level: int = 3,
    libraries: Sequence[DeviceLibrary] = (),
    blocks: Mapping[str, int] | None = None,
) -> list[KernelCode]:
    """Return PTX with all kernels of a module; host functions are dropped and the module is consumed.

    `libraries` define functions that kernels may call, `blocks` the grids that kernels are launched with.
    """
    lowered = lower_to_nvvm(module, chip, blocks)
    if lowered is None:
        return []
    code = translate(lowered.whole, lambda text: assemble(text, chip, opt_level, libraries), libraries).encode()
    return [KernelCode(name, entry, code, shared=lowered.shared.get(entry, 0)) for name, entry in lowered.names.items()]


def translate(whole: ir.Operation, make: Callable[[str], str], libraries: Sequence[DeviceLibrary] = ()) -> str:
    """Return the result of `make` for the LLVM IR of kernels; code that may end the process is tried in a fork first.

    That is code that Mirlo does not know, and code of libraries.
    """
    suspects = {*suspects_in(whole), *(str(library.path) for library in libraries)}
    return make_guarded(whole, suspects, lambda: make(readable_by_older(translate_to_llvm_ir(whole))))


def lower_to_nvvm(
    module: ir.Module | ir.OpView, chip: Chip, blocks: Mapping[str, int] | None = None
) -> LoweredKernels | None:
    """Lower the kernels of a module to the LLVM dialect; None if there are none. The module is consumed."""
    kernels = _gather(module)
    if not kernels:
        return None
    (whole,) = (op.operation for op in module.body.operations)
    asked = allocate_shared(whole, chip)
    maps = pass_tensor_maps(whole)
    call_intrinsics(whole)
    far = _is_huge(whole) or _has_scalar_arguments(whole)
    index = 64 if far or any(find_all(whole, *_WIDE).values()) else 32
    if index == 32:
        saturate_indices(whole)
    if not far:
        narrow_comparisons(whole)
    _convert(module, _TO_BRANCHES)
    _tell_blocks_apart(whole)
    _convert(module, _TO_NVVM.format(index=index), verify=True)
    for op in _branches(whole):
        if _NUMBER in op.attributes:
            del op.attributes[_NUMBER]
    check_translated(whole)
    leave_to_launch(whole)
    together = {kernels[name]: -(-count // chip.units) for name, count in (blocks or {}).items() if name in kernels}
    lowered = LoweredKernels(whole, kernels, asked)
    for name, function in lowered.functions().items():
        describe(function, maps.get(name, ()), together.get(name))
    return lowered


def _convert(module: ir.Module | ir.OpView, pipeline: str, verify: bool = False) -> None:
    """Run passes on a module, which are not expected to fail, and verify the result."""
    try:
        run_unverified(f"builtin.module({pipeline})", module.operation)
        if verify:
            module.operation.verify()
    except ir.MLIRError as error:
        reasons = "; ".join(dict.fromkeys(d.message for d in error.error_diagnostics)) or str(error)
        raise PassError(f"conversion to NVVM failed: {reasons}") from error


_NUMBER = "number"


def _branches(whole: ir.Operation) -> Iterator[ir.Operation]:
    """Return the branches of kernels, before and after their conversion."""
    return chain.from_iterable(find_all(whole, "cf.br", "cf.cond_br", "llvm.br", "llvm.cond_br").values())


def _tell_blocks_apart(whole: ir.Operation) -> None:
    """Give branches of kernels numbers, so that MLIR's passes do not merge equal blocks.

    At a barrier in merged blocks threads wait that are at different places of the kernel, and LLVM would make two of it
    again, with other threads at each.
    """
    for number, op in enumerate(_branches(whole)):
        op.attributes[_NUMBER] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


_BY_INTRINSIC = {
    "math.absf": "fabs", "math.sqrt": "sqrt", "math.floor": "floor", "math.ceil": "ceil", "math.trunc": "trunc",
    "math.roundeven": "roundeven", "math.copysign": "copysign", "math.fma": "fma", "math.exp2": "exp2",
}  # fmt: skip
"""Operations that the back end selects; MLIR's conversion would call a library for them."""


def call_intrinsics(root: ir.Operation) -> None:
    """Lower math operations to calls of LLVM intrinsics."""
    operations = find_all(root, *_BY_INTRINSIC)
    for name, short in _BY_INTRINSIC.items():
        for op in operations[name]:
            kind = op.results[0].type
            with ir.InsertionPoint(op), op.location:
                called = call_intrinsic(f"llvm.{short}.{kind}", kind, *op.operands)
            op.results[0].replace_all_uses_with(called)
            op.erase()


def _gather(module: ir.Module | ir.OpView) -> dict[str, str]:
    """Move all kernels to one `gpu.module`; return their names by launch name."""
    operations = [op.operation for op in module.body.operations]
    modules = [op for op in operations if op.name == "gpu.module"]
    names = {}
    declared: set[str] = set()
    for op in modules:
        own = symbol_name(op)
        declared |= _declare_callees(op, modules[0], declared)
        for function in [o.operation for o in op.regions[0].blocks[0].operations if o.operation.name == "gpu.func"]:
            name = symbol_name(function)
            rename_symbol(function, own)
            names[f"{own}::{name}"] = own
            if op is not modules[0]:
                function.move_before(modules[0].regions[0].blocks[0].operations[0])
    for op in operations[::-1]:
        if op not in modules[:1]:
            op.erase()
    return names


def _declare_callees(source: ir.Operation, target: ir.Operation, declared: set[str]) -> set[str]:
    """Declare the functions that kernels call in the target module; return their names."""
    functions = [o.operation for o in source.regions[0].blocks[0].operations if o.operation.name == "func.func"]
    names = [symbol_name(function) for function in functions]
    for name, function in zip(names, functions, strict=True):
        if name not in declared and source is not target:
            function.move_before(target.regions[0].blocks[0].operations[0])
    return set(names)


def check_translated(root: ir.Operation) -> None:
    """Raise an error for operations that cannot be translated to LLVM IR, which would end the process."""
    problems: list[PassError] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if not is_translated(op):
            problems.append(PassError(f"'{op.name}' is not converted to NVVM", op.location))
        elif op.name == "llvm.call_intrinsic":
            name = ir.StringAttr(op.attributes["intrin"]).value
            if not _INTRINSICS.match(name):
                rule = (
                    f", which rule '{ir.StringAttr(op.attributes[RULE]).value}' emitted"
                    if RULE in op.attributes
                    else ""
                )
                problems.append(PassError(f"NVIDIA GPUs have no code for '{name}'{rule}", op.location))
        return ir.WalkResult.INTERRUPT if problems else ir.WalkResult.ADVANCE

    for region in root.regions:
        for block in region.blocks:
            for op in block.operations:
                walk(op, visit, ir.WalkOrder.PRE_ORDER)
                if problems:
                    raise problems[0]


_DECLARATIONS = re.compile(r"^declare .*?@([\w.$]+)\(", re.MULTILINE)


def check_selected(declared: Iterable[str], linked: Collection[str] = ()) -> None:
    """Raise an error for functions, declared and not linked, that the back end cannot select."""
    for name in declared:
        if name in linked:
            continue
        if not name.startswith("llvm."):
            raise PassError(f"a kernel calls '{name}', which is not defined on the GPU")
        if not _INTRINSICS.match(name):
            raise PassError(f"NVIDIA GPUs have no code for '{name}'")


def assemble(text: str, chip: Chip, opt_level: int = 3, libraries: Sequence[DeviceLibrary] = ()) -> str:
    """Compile LLVM IR to PTX."""
    ptx = _machine(chip.name, chip.ptx, opt_level).emit_assembly(optimized(text, chip, opt_level, libraries))
    return merge_ptx(ptx, chip, libraries)


@cache
def _machine(name: str, ptx: int, opt_level: int) -> LlvmMachine:
    """Return LLVM's back end for a chip and a version of PTX."""
    target = llvmlite().Target.from_triple(TRIPLE)
    machine: LlvmMachine = target.create_target_machine(cpu=name, features=f"+ptx{ptx}", opt=opt_level)
    return machine


def optimized(text: str, chip: Chip, opt_level: int = 3, libraries: Sequence[DeviceLibrary] = ()) -> LlvmModule:
    """Parse LLVM IR and optimize it; return llvmlite's module."""
    binding = llvmlite()
    if not libraries:
        check_selected(_DECLARATIONS.findall(text))
    module: LlvmModule = binding.parse_assembly(text)
    module.triple = TRIPLE
    machine = _machine(chip.name, chip.ptx, opt_level)
    module.data_layout = str(machine.target_data)
    linked: set[str] = set()
    if libraries:
        linked = link_bitcode(binding, module, libraries)
        check_selected(_DECLARATIONS.findall(text), linked)
        module.verify()
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=opt_level))
    builder.getModulePassManager().run(module, builder)
    check_selected((function.name for function in module.functions if function.is_declaration), linked)
    return module


def _is_huge(kernel: ir.Operation) -> bool:
    """Return whether an index needs more than 32 bits."""
    for function in find_outermost(kernel, "gpu.func"):
        for argument in function.regions[0].blocks[0].arguments:
            count = 1
            for dim in argument.type.shape if isinstance(argument.type, ir.MemRefType) else ():
                count *= dim
            if count >= 1 << 31:
                return True
    return False


def _has_scalar_arguments(kernel: ir.Operation) -> bool:
    """Return whether kernels take scalar arguments, which have 64 bits."""
    functions = find_outermost(kernel, "gpu.func")
    return any(isinstance(a.type, ir.IndexType) for f in functions for a in f.regions[0].blocks[0].arguments)
