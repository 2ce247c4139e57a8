"""Kernel parameters and attributes in LLVM's dialect: pointers, tensor maps, accumulators, registers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.lower.calls import find_all, find_outermost

ALIGNMENT = 16
"""Alignment of every buffer, in bytes; the memory plan provides more."""
MAP_BYTES, MAP_ALIGNMENT = 128, 128
"""Size and alignment of a tensor map, which is passed by value."""
CLUSTER = 2
"""Thread blocks of a cluster, in kernels that use one."""
REGISTERS = 65536
"""Registers of a multiprocessor."""
MIN_THREADS_FOR_LATENCY = 512
"""Threads per multiprocessor above which long sequences of loads are not needed."""
MMA = "nvvm.mma.sync"
"""The operation on fragments in registers."""
INITIAL_REGISTERS = 168
"""Initial registers per thread, if warps redistribute them."""


def pass_tensor_maps(module: ir.Operation) -> dict[str, list[int]]:
    """Change tensor maps of kernels of a `gpu.module` to pointers; return their argument indices by kernel name."""
    result: dict[str, list[int]] = {}
    pointer = ir.Type.parse("!llvm.ptr")
    for function in find_outermost(module, "gpu.func"):
        arguments = function.regions[0].blocks[0].arguments
        maps = [i for i, argument in enumerate(arguments) if "tensormap" in str(argument.type)]
        if not maps:
            continue
        result[symbol_name(function)] = maps
        for i in maps:
            arguments[i].set_type(pointer)
            for use in list(arguments[i].uses):
                cast = use.owner.operation
                cast.results[0].replace_all_uses_with(arguments[i])
                cast.erase()
        kind = ir.FunctionType.get([argument.type for argument in arguments], [])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
    return result


def describe(function: ir.Operation, maps: Sequence[int], together: int | None = None) -> None:
    """Attach attributes to the arguments of a kernel, and its initial register count.

    `together` is the number of resident blocks per multiprocessor, if all blocks of a launch are resident.
    """
    i32, i64 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(64)
    aligned: dict[str, ir.Attribute] = {"llvm.align": ir.IntegerAttr.get(i64, ALIGNMENT)}
    by_value: dict[str, ir.Attribute] = {
        "llvm.align": ir.IntegerAttr.get(i64, MAP_ALIGNMENT), "nvvm.grid_constant": ir.UnitAttr.get(),
        "llvm.byval": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{MAP_BYTES} x i8>")),
    }  # fmt: skip
    arguments = function.regions[0].blocks[0].arguments
    known = [by_value if i in maps else {} if _is_scalar(a) else aligned for i, a in enumerate(arguments)]
    function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(one) for one in known])
    used = find_all(function, "nvvm.mapa", "nvvm.setmaxregister", MMA)
    if used["nvvm.mapa"]:
        function.attributes["nvvm.cluster_dim"] = ir.DenseI32ArrayAttr.get([CLUSTER, 1, 1])
    if "nvvm.maxntid" not in function.attributes:
        return
    threads = math.prod(ir.DenseI32ArrayAttr(function.attributes["nvvm.maxntid"]))
    if used["nvvm.setmaxregister"]:
        # Warps can only redistribute registers that the kernel was given, and the assembler must know that number.
        # Those that take more start with fewer.
        function.attributes["nvvm.maxnreg"] = ir.IntegerAttr.get(
            i32, min(REGISTERS // threads // 8 * 8, INITIAL_REGISTERS)
        )
    elif together is not None and together * threads <= MIN_THREADS_FOR_LATENCY and not used[MMA]:
        # By default the assembler saves registers for blocks that do not exist, and has fewer loads in flight.
        # Fragments may need more registers than all these blocks leave: they would be spilled.
        function.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(i32, together)


def _is_scalar(argument: ir.Value) -> bool:
    return isinstance(argument.type, ir.IntegerType)
