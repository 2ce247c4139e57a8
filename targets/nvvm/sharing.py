"""Shared memory: static globals of the module; larger amounts are requested with each launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.value import create, index
from mirlo.dialects.tir.buffers import buffer_bytes
from mirlo.passes.lower.calls import find, find_all, find_outermost
from mirlo.passes.registry import PassError
from mirlo.targets.nvvm.chips import Chip

STATIC_BYTES = 48 * 1024
"""Static shared memory limit of a kernel."""
ALIGNMENT = 16
"""Alignment of shared memory, in bytes."""
_DYNAMIC_SHARED = "asked_for"
"""The global that stands for dynamic shared memory."""
_TENSOR_COPY = "nvvm.cp.async.bulk.tensor.shared.cluster.global"
TILE_ALIGNMENT = 1024
"""Alignment of dynamic shared memory: the period of the swizzle patterns."""


def allocate_shared(module: ir.Operation, chip: Chip) -> dict[str, int]:
    """Assign addresses to the shared memory of all kernels of a `gpu.module`; return the dynamic bytes per kernel."""
    asked: dict[str, int] = {}
    for function in find_outermost(module, "gpu.func"):
        used = find_all(function, "memref.alloc", _TENSOR_COPY)
        allocations = used["memref.alloc"]
        sizes = [buffer_bytes(alloc.results[0].type) for alloc in allocations]
        fits = sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes) <= STATIC_BYTES
        # Tiles copied by tensor maps must start at a swizzle period, which only dynamic shared memory guarantees.
        if fits and not used[_TENSOR_COPY]:
            continue
        offsets, total = [], 0
        for size in sizes:
            offsets.append(total)
            total += -(-size // TILE_ALIGNMENT) * TILE_ALIGNMENT
        if total > chip.shared_bytes:
            raise PassError(
                f"kernel '{symbol_name(function)}' uses {total} bytes of shared memory, and a block of threads of chip "
                f"'{chip.name}' has {chip.shared_bytes}: let a block compute less at once, or give buffers of 'shared' "
                "scope fewer elements",
                function.location,
            )
        asked[symbol_name(function)] = total
        for alloc, offset in zip(allocations, offsets, strict=True):
            _replace(alloc, partial(_shared_range, module, offset))
    for number, alloc in enumerate(find(module, "memref.alloc")):
        _replace(alloc, partial(_global, module, f"shared_{number}", ALIGNMENT))
    return asked


def leave_to_launch(module: ir.Operation) -> None:
    """Make the global for dynamic shared memory external, after the conversion to LLVM's dialect.

    Only external globals denote the memory that comes with a launch; MLIR makes all globals of kernels internal.
    """
    for op in (each.operation for each in module.regions[0].blocks[0].operations):
        if op.name == "llvm.mlir.global" and symbol_name(op) == _DYNAMIC_SHARED:
            op.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")


def _replace(alloc: ir.Operation, make: Callable[[ir.Type], ir.Value]) -> None:
    with alloc.location, ir.InsertionPoint(alloc):
        alloc.results[0].replace_all_uses_with(make(alloc.results[0].type))
    alloc.erase()


def _shared_range(module: ir.Operation, offset: int, kind: ir.Type) -> ir.Value:
    """Return a range of dynamic shared memory."""
    i8, space = ir.IntegerType.get_signless(8), kind.memory_space
    whole = _global(
        module, _DYNAMIC_SHARED, TILE_ALIGNMENT, ir.MemRefType.get([0], i8, memory_space=space), outside=True
    )
    return create("memref.view", kind, whole, index(offset))


def _global(module: ir.Operation, name: str, alignment: int, kind: ir.Type, outside: bool = False) -> ir.Value:
    """Return a global of the module, made on first use; with `outside` the launch determines its size."""
    block = module.regions[0].blocks[0]
    globals_ = [op.operation for op in block.operations if op.operation.name == "memref.global"]
    if not any(symbol_name(op) == name for op in globals_):
        attributes = {
            "sym_name": ir.StringAttr.get(name), "sym_visibility": ir.StringAttr.get("private"),
            "type": ir.TypeAttr.get(kind), "alignment": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), alignment),
        }  # fmt: skip
        if not outside:
            attributes["initial_value"] = ir.UnitAttr.get()
        with ir.InsertionPoint.at_block_begin(block):
            ir.Operation.create("memref.global", attributes=attributes)
    reference = {"name": ir.FlatSymbolRefAttr.get(name)}
    return ir.Operation.create("memref.get_global", results=[kind], attributes=reference).results[0]
