"""The scheduled form of a kernel: a prim function in buffer form, after `lower-loops` and before `lower-intrinsics`."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import workspace_of
from mirlo.dialects.tir.sizes import symbols_of_function
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.function_calls import FunctionCalls
from mirlo.passes.exact.ir_text import ModuleText
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translate_memory import float_bytes
from mirlo.passes.exact.translator import Argument, KernelTranslator, is_float_buffer
from mirlo.passes.exact.values import bits_of, element_of, is_float


def translate_scheduled(
    function: ir.Operation, shapes: Sequence[tuple[str, tuple[Dim, ...]]], arithmetic: Arithmetic, module: ModuleText,
    name: str, places: list[str] | None = None, sites: list[str] | None = None, calls: FunctionCalls | None = None,
) -> list[Argument]:  # fmt: skip
    """Append a function of this name to a module; return its arguments.

    `shapes` are the roles and the dims of inputs and outputs, as the definition has them: buffers of dynamic size have
    none. Workspaces and sizes follow. The kinds of loops and branches are added to `places`, if any, and their cases
    noted at run time. What faults of synchronization are about is added to `sites`, if any. For a function, a random
    one stands where `calls` says.
    """
    t = KernelTranslator(arithmetic, module, name)
    t.places, t.calls = places, calls
    t.sites = [] if sites is None else sites
    t.find_view_ratio = lambda: _view_ratio(function, arithmetic)
    symbols = iter(symbols_of_function(function.opview))
    block = function.regions[0].blocks[0]
    for i, argument in enumerate(block.arguments):
        kind = argument.type
        if isinstance(kind, ir.IndexType):
            t.values[argument] = t.size_argument(next(symbols))
        elif not isinstance(kind, ir.MemRefType):
            raise OutsideError(f"a parameter of type {kind}")
        elif i < len(shapes):
            role, dims = shapes[i]
            element = element_of(kind)
            bits = 0 if is_float(element) else bits_of(element)
            buffer = t.buffer_argument(Argument(role, "f" if is_float(element) else "i", bits, dims), tuple(kind.shape))
            if role == "out" and _is_only_written(argument):
                t.in_one_plane.add(buffer.roots)
            t.values[argument] = buffer
        else:
            workspace = t.scratch(element_of(kind), (workspace_of(function.opview),))
            t.values[argument] = t.buffer_argument(workspace, tuple(kind.shape))
    t.emit_block(block)
    t.f.finish(has_dead_code=arithmetic.planes > 1 and t.shadows is None)
    return t.arguments


def _view_ratio(function: ir.Operation, arithmetic: Arithmetic) -> int:
    """Return by how much memory of bytes has to be larger than in the kernel, as floats in it are."""
    views = [op.results[0].type for op in operations_in(function) if op.name == "memref.view"]
    ratios = [arithmetic.bytes / float_bytes(kind.element_type) for kind in views if is_float_buffer(kind)]
    return int(max([1, *ratios]))


_WRITTEN = {"memref.store": 1, "vector.store": 1, "vector.maskedstore": 0}
"""The operand that is the memory which an operation writes."""
_SAME = ("memref.prefetch", "memref.assume_alignment", "memref.cast", "memref.subview", "memref.collapse_shape",
         "memref.expand_shape", "memref.reinterpret_cast")  # fmt: skip
"""Operations whose results are the same memory."""


def _is_only_written(memory: ir.Value) -> bool:
    """Return whether a kernel reads nothing that it writes to memory."""
    for use in memory.uses:
        op = use.owner.operation
        if op.name in _SAME:
            if not all(_is_only_written(result) for result in op.results):
                return False
        elif _WRITTEN.get(op.name) != use.operand_number:
            return False
    return True
