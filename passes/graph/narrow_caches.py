"""The pass `narrow-caches`: key/value caches in half of the memory, or in a quarter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.surgery import erase_op, operations
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.cache_updates import CacheUpdate, match_cache_update
from mirlo.passes.graph.scaled_caches import ScaledCaches
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.runtime.names import CACHE_DTYPES
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class NarrowCaches(Pass):
    """Store f32 key/value caches in a narrower type of floats, or in i8 with a scale for each row.

    A cache is an input that `relax.cache_write` adds rows to, and the output that has them: both get the type. New
    rows are rounded when they are written, and what reads the cache converts its elements: attention in registers.
    The scales of i8 are further inputs and outputs, with the names of the caches and `.scale`. Other inputs and outputs
    keep their types. A cache in pages is reshaped before it is written and after; each head of a row has a scale.
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
        matches = [match_cache_update(each) for each in operations(op) if each.name == "relax.cache_write"]
        writes = [each for each in matches if each is not None]
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


def _narrow(cache: CacheUpdate, dtype: DType) -> None:
    """Rebuild a write of a cache for a narrower type, with casts around it."""
    write, source = cache.write, cache.input
    _, new, positions = write.operands
    tensor_type = TensorType.from_mlir(source.type)
    assert tensor_type is not None
    source.set_type(tensor_type.with_dtype(dtype).to_mlir())
    with ir.InsertionPoint(write), write.location:
        if cache.views:
            source = OPS["reshape"].make(source, **cache.views[0].opview.attribute_values())
        rounded = OPS["cast"].make(new, dtype=dtype)
        output = OPS["cache_write"].make(source, rounded, positions, **write.opview.attribute_values())
        if cache.views:
            output = OPS["reshape"].make(output, **cache.views[1].opview.attribute_values())
    for use in list(cache.result.uses):
        user = use.owner.operation
        if user.name == "func.return":
            user.operands[use.operand_number] = output
        elif user.name == "relax.paged_attention":
            user.operands[use.operand_number] = output  # it converts the rows that it reads
        elif _reads_part(user) and use.operand_number == 0:
            # Attention reads some rows: others are not converted.
            _convert_behind(user, output)
        else:
            with ir.InsertionPoint(user), user.location:
                user.operands[use.operand_number] = OPS["cast"].make(output, dtype=DTYPES["f32"])
    for op in (*cache.views[1:], write, *cache.views[:1]):
        erase_op(op)


def _reads_part(op: ir.Operation) -> bool:
    """Return whether an operation reads some rows of a cache: the first ones, or the pages of some sequences."""
    return Trait.SUBSET in traits_of(op)


def _convert_behind(op: ir.Operation, cache: ir.Value) -> None:
    """Replace a part of a cache by the same one of a narrower cache, converted to f32."""
    with ir.InsertionPoint(op), op.location:
        part = class_of(op).make(cache, *list(op.operands)[1:], **op.opview.attribute_values())
        wide = OPS["cast"].make(part, dtype=DTYPES["f32"])
    op.results[0].replace_all_uses_with(wide)
    erase_op(op)
