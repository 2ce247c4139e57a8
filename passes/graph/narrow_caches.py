"""The pass `narrow-caches`: key/value caches in half of the memory, or in a quarter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.surgery import erase_op, operations
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.scaled_caches import ScaledCaches
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.runtime.names import CACHE_DTYPES

if TYPE_CHECKING:
    from mirlo.passes.session import Session

_SLICES = ("relax.slice_dims", "relax.strided_slice")


@register_pass
@dataclass(frozen=True)
class NarrowCaches(Pass):
    """Store f32 key/value caches in a narrower type of floats, or in i8 with a scale for each row.

    A cache is an input that `relax.cache_write` adds rows to, and the output that has them: both get the type. New
    rows are rounded when they are written, and what reads the cache converts its elements: attention in registers.
    The scales of i8 are further inputs and outputs, with the names of the caches and `.scale`. Other inputs and outputs
    keep their types.
    """

    name = "narrow-caches"
    contained = True
    anchor = "func.func"
    dtype: str = option("bf16", "the type of the caches: bf16, f16 or i8")

    def run(self, op: ir.OpView, session: Session) -> None:
        if self.dtype not in CACHE_DTYPES:
            raise PassError(f"dtype must be {', '.join(CACHE_DTYPES[:-1])} or {CACHE_DTYPES[-1]}, got '{self.dtype}'")
        if "tir.prim_func" in op.operation.attributes or not len(op.operation.regions[0].blocks):
            return
        writes = [each for each in operations(op) if each.name == "relax.cache_write" and _is_cache(each)]
        if not writes:
            what = f"no f32 input is a cache that grows in place: {self.dtype} caches need one"
            raise PassError(f"{what}, as GroupQueryAttention and TensorScatter have", op.operation.location)
        if DTYPES[self.dtype].is_integer:
            caches = ScaledCaches(op)
            for each in writes:
                caches.narrow(each)
            caches.finish()
        else:
            for each in writes:
                _narrow(each, DTYPES[self.dtype])
        entry = op.operation.regions[0].blocks[0]
        types = [argument.type for argument in entry.arguments]
        results = [value.type for value in operations(op)[-1].operands]
        op.operation.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))


def _is_cache(write: ir.Operation) -> bool:
    """Return whether an operation updates an f32 input that nothing else reads, and its result is an output."""
    cache, result = write.operands[0], write.results[0]
    is_input = isinstance(cache.owner, ir.Block) and isinstance(cache.type.element_type, ir.F32Type)
    if not is_input or sum(1 for _ in cache.uses) != 1:
        return False
    return any(use.owner.name == "func.return" for use in result.uses)


def _narrow(write: ir.Operation, dtype: DType) -> None:
    """Rebuild a write of a cache for a narrower type, with casts around it."""
    cache, new, positions = write.operands
    tensor_type = TensorType.from_mlir(cache.type)
    assert tensor_type is not None
    cache.set_type(tensor_type.with_dtype(dtype).to_mlir())
    with ir.InsertionPoint(write), write.location:
        rounded = OPS["cast"].make(new, dtype=dtype)
        output = OPS["cache_write"].make(cache, rounded, positions, **write.opview.attribute_values())
    (result,) = write.results
    for use in list(result.uses):
        user = use.owner.operation
        if user.name == "func.return":
            user.operands[use.operand_number] = output
        elif user.name in _SLICES:
            # Attention reads the first rows: what is behind them is not converted.
            _convert_behind(user, output)
        else:
            with ir.InsertionPoint(user), user.location:
                user.operands[use.operand_number] = OPS["cast"].make(output, dtype=DTYPES["f32"])
    erase_op(write)


def _convert_behind(op: ir.Operation, cache: ir.Value) -> None:
    """Replace a slice by the same one of a narrower cache, converted to f32."""
    with ir.InsertionPoint(op), op.location:
        part = class_of(op).make(cache, **op.opview.attribute_values())
        wide = OPS["cast"].make(part, dtype=DTYPES["f32"])
    op.results[0].replace_all_uses_with(wide)
    erase_op(op)
