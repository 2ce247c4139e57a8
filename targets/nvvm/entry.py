"""What kernels are given and begin with, as LLVM's dialect says it: pointers, tensor maps, sums, registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.passes.lower.calls import find

ALIGNMENT = 16
"""Of every buffer, in bytes; the plan of memory gives more."""
MAP_BYTES, MAP_ALIGNMENT = 128, 128
"""Of a tensor map, which is passed as it is."""
CLUSTER = 2
"""Blocks that reach each other's shared memory, where kernels do."""
REGISTERS = 65536
"""Of a unit."""
FEW_THREADS = 512
"""Of a unit; with more of them it does without long runs of reads."""
MOST_AT_FIRST = 168
"""Registers of a thread where warps take some from others."""


def take_maps(module: Any) -> dict[str, list[int]]:
    """Let the kernels of a `gpu.module` take tensor maps as pointers; by name, which arguments these are."""
    found: dict[str, list[int]] = {}
    pointer = ir.Type.parse("!llvm.ptr")
    for function in find(module, "gpu.func"):
        arguments = function.regions[0].blocks[0].arguments
        maps = [i for i, argument in enumerate(arguments) if "tensormap" in str(argument.type)]
        if not maps:
            continue
        found[ir.StringAttr(function.attributes["sym_name"]).value] = maps
        for i in maps:
            arguments[i].set_type(pointer)
            for use in list(arguments[i].uses):
                cast = use.owner.operation
                cast.results[0].replace_all_uses_with(arguments[i])
                cast.erase()
        kind = ir.FunctionType.get([argument.type for argument in arguments], [])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
    return found


def describe(function: Any, maps: Sequence[int], together: int | None = None) -> None:
    """Say what is known of the arguments of a kernel, and how many registers its threads begin with.

    `together` are the blocks that a unit has at a time, where all blocks of a launch are there together.
    """
    i32, i64 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(64)
    aligned = {"llvm.align": ir.IntegerAttr.get(i64, ALIGNMENT)}
    by_value = {
        "llvm.align": ir.IntegerAttr.get(i64, MAP_ALIGNMENT), "nvvm.grid_constant": ir.UnitAttr.get(),
        "llvm.byval": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{MAP_BYTES} x i8>")),
    }  # fmt: skip
    arguments = function.regions[0].blocks[0].arguments
    known = [by_value if i in maps else {} if _is_number(a) else aligned for i, a in enumerate(arguments)]
    attributes = list(map(ir.DictAttr.get, known))
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    if find(function, "nvvm.mapa"):
        function.attributes["nvvm.cluster_dim"] = ir.DenseI32ArrayAttr.get([CLUSTER, 1, 1])
    if "nvvm.maxntid" not in function.attributes:
        return
    threads = math.prod(ir.DenseI32ArrayAttr(function.attributes["nvvm.maxntid"]))
    if find(function, "nvvm.setmaxregister"):
        # What warps take from each other, the kernel must have been given: the assembler has to know how much. Those
        # that take more must have less before.
        function.attributes["nvvm.maxnreg"] = ir.IntegerAttr.get(i32, min(REGISTERS // threads // 8 * 8, MOST_AT_FIRST))
    elif together is not None and together * threads <= FEW_THREADS:
        # Left to itself the assembler saves registers for blocks that do not come, and has fewer reads under way.
        function.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(i32, together)


def _is_number(argument: Any) -> bool:
    return isinstance(argument.type, ir.IntegerType)
