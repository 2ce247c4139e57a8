"""The pass `fold-constant`: operators whose operands are constants become constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import blocks, erase_dead, replace_op
from mirlo.dialects.core.types import TensorType
from mirlo.passes.graph.constants import constant_name, constant_value, is_constant, make_constant
from mirlo.passes.graph.evaluate import EVALUATORS
from mirlo.passes.registry import Pass, option, register_pass


@register_pass
@dataclass(frozen=True)
class FoldConstant(Pass):
    """Evaluate operators whose operands are all constants, with numpy.

    A result may be larger than its operands only up to `grow` bytes: what repeats data is cheaper to compute than to
    store.
    """

    name = "fold-constant"
    anchor = "func.func"
    grow: int = option(1 << 20, "bytes by which a result may exceed its operands")

    def run(self, op: Any, session: Any) -> None:
        found = blocks(op)
        for block in found:
            for operation in [o.operation for o in block.operations]:
                _fold(operation, session, self.grow)
        for block in found:
            erase_dead(block, _is_constant)


def _is_constant(op: Any) -> bool:
    return bool(op.name == "relax.constant")


def _fold(op: Any, session: Any, grow: int) -> None:
    meaning = EVALUATORS.get(op.name)
    if meaning is None or not all(is_constant(v) for v in op.operands):
        return
    kinds = [TensorType.from_mlir(r.type) for r in op.results]
    if any(kind is None or not kind.is_static for kind in kinds):
        return
    read = sum(kind.bytes for v in op.operands if (kind := TensorType.from_mlir(v.type)) is not None)
    if sum(kind.bytes for kind in kinds if kind is not None) > read + grow:
        return
    arrays = [constant_value(v, session) for v in op.operands]
    if any(array is None for array in arrays):
        return
    with np.errstate(all="ignore"):
        made = meaning(op.opview, *arrays)
    if made is None:
        return
    results = made if isinstance(made, tuple) else (made,)
    base = _name(op)
    with ir.InsertionPoint(op), op.location:
        values = [
            make_constant(np.asarray(array, kind.dtype.to_numpy()), kind, session, base)
            for array, kind in zip(results, kinds, strict=True)
            if kind is not None
        ]
    replace_op(op, values)


def _name(op: Any) -> str:
    """`weight.permute` for what is computed from `weight`; its operands may be shared, so it is made unique later."""
    largest = max(op.operands, key=lambda v: int(np.prod(v.type.shape)), default=None)
    short = op.name.split(".")[-1]
    return f"{constant_name(largest)}.{short}" if largest is not None else short
