"""Counts of multiply-adds and memory of kernels, for reports about small processors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.buffers import buffer_bytes
from mirlo.dialects.tir.view import PrimView, is_tensor_form, prim_functions
from mirlo.passes.registry import Pass, register_pass
from mirlo.runtime.artifact import KernelInfo
from mirlo.runtime.records import dataclass
from mirlo.targets.planned import calls_of

if TYPE_CHECKING:
    from mirlo.passes.session import Session

PRODUCTS = "tir.products"
"""Attribute of a prim function: its multiply-adds."""
_MULTIPLIES = ("arith.muli", "arith.mulf")


@register_pass
@dataclass(frozen=True)
class CountProducts(Pass):
    """Annotate prim functions with their multiply-adds: multiplications in reductions with static sizes."""

    name = "count-products"
    contained = True
    trusted = True

    def run(self, op: ir.OpView, session: Session) -> None:
        for function in prim_functions(op):
            if is_tensor_form(function):
                total = sum(
                    prod(int(dim) for dim in block.domain if isinstance(dim, int))
                    * sum(inner.operation.name in _MULTIPLIES for inner in block.body_ops)
                    for block in PrimView(function).blocks
                    if block.is_reduction
                )
                kind = ir.IntegerType.get_signless(64)
                function.operation.attributes[PRODUCTS] = ir.IntegerAttr.get(kind, total)


def kernel_memory(main: ir.Operation, module: ir.Module, kernels: Sequence[KernelInfo]) -> list[dict[str, Any]]:
    """Return a row per call: multiply-adds, and bytes of weights that it reads, of other buffers, of local arrays."""
    entries = ir.ArrayAttr(main.attributes["arg_attrs"])
    block = main.regions[0].blocks[0]
    is_weight: dict[ir.Value, bool] = {
        argument: "relax.param" in ir.DictAttr(entry) for argument, entry in zip(block.arguments, entries, strict=True)
    }
    functions = {symbol_name(op): op.operation for op in module.body.operations}
    rows = []
    for call, kernel in zip(calls_of(main), kernels, strict=True):
        weights = buffers = 0
        for value in call.operands:
            if not isinstance(value.type, ir.MemRefType):
                continue
            size = buffer_bytes(value.type)
            if is_weight.get(value) or (isinstance(value, ir.OpResult) and value.owner.name == "memref.get_global"):
                weights += size
            else:
                buffers += size
        function = functions.get(kernel.symbol)
        products = (
            function.attributes[PRODUCTS].value if function is not None and PRODUCTS in function.attributes else 0
        )
        stack = _local_bytes(function) if function is not None else 0
        rows.append({
            "kernel": kernel.symbol, "nodes": kernel.source, "products": products, "flash": weights, "ram": buffers,
            "stack": stack,
        })  # fmt: skip
    return rows


def _local_bytes(function: ir.Operation) -> int:
    """Return the bytes of a function's arrays on the stack, as if all were alive at once."""
    sizes: list[int] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "memref.alloca":
            sizes.append(buffer_bytes(op.results[0].type))
        return ir.WalkResult.ADVANCE

    walk(function, visit)
    return sum(sizes)
