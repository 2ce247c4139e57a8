"""Which buffers the kernels of a module write."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.lower.calls import find_outermost


def written_buffers(module: ir.Module) -> dict[str, list[int]]:
    """Return for each kernel, by its name with that of its module, the positions of the buffers that it writes."""
    written = {}
    for function in find_outermost(module, "gpu.func"):
        holder = function.parent
        assert holder is not None
        arguments = function.regions[0].blocks[0].arguments
        name = f"{symbol_name(holder)}::{symbol_name(function)}"
        written[name] = [i for i, argument in enumerate(arguments) if _is_written(argument)]
    return written


def _is_written(argument: ir.Value) -> bool:
    """Return whether a kernel does anything with a buffer other than read elements."""
    if not isinstance(argument.type, ir.MemRefType):
        return False  # a scalar, or a tensor map: only operands that are read have one
    return not all(
        use.owner.operation.name in ("memref.load", "vector.load") or _is_source(use) for use in argument.uses
    )


def _is_source(use: ir.OpOperand) -> bool:
    """Return whether an asynchronous copy reads a buffer; its first operands are the destination."""
    op = use.owner.operation
    return op.name == "nvgpu.device_async_copy" and use.operand_number >= 2
