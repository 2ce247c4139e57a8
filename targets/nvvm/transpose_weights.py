"""The pass `transpose-weights`: constant operands of products stored contiguously along K."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import PrimView, is_tensor_form, prim_functions
from mirlo.passes.graph.constants import is_available
from mirlo.passes.memory.weights import ConstantReleaser
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.group import unfit, whole_group
from mirlo.passes.schedule.schedule import adopt_choices
from mirlo.passes.schedule.stored import Stored, calls_of, store_for_calls
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.contraction.staging import with_whole_vectors
from mirlo.targets.gpu.schedule.roles import ProductOperand, Roles, product_of
from mirlo.targets.gpu.schedule.stage import LANES
from mirlo.targets.nvvm.options import Options, planned_for
from mirlo.targets.nvvm.schedule.tensorcore import formats_of

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class TransposeWeights(Pass):
    """Store the weights of products as the matrix units read them: contiguous along K.

    int8 and rounded f32 are multiplied several elements of K at a time, which must be contiguous; 16-bit elements
    are transposed on load. Without this pass kernels transpose int8 in registers, and warpgroups cannot multiply it.
    Only prim functions whose calls all pass a constant are changed.
    """

    name = "transpose-weights"
    contained = True
    trusted = True
    machine: str = option("", "chip and options of the target, as for `schedule`")

    def run(self, op: ir.OpView, session: Session) -> None:
        options = planned_for({"machine": self.machine or session.options.get("machine")})
        calls = calls_of(op)
        known: dict[object, str] = {}
        release = ConstantReleaser(op, session)
        for function in prim_functions(op):
            if not is_tensor_form(function):
                continue
            sites = calls.get(PrimView(function).name, [])
            if not sites or not any(map(is_product, PrimView(function).blocks)):
                continue
            if not adopt_choices(function, "nvvm", session):
                continue  # words that arrange loops fix the layout of operands
            view = PrimView(function)
            for stored in _transposed_weights(view, options):
                if all(is_available(site.operands[stored.argument], session) for site in sites):
                    store_for_calls(view, sites, stored, session, known, release.unused)


def _transposed_weights(view: PrimView, options: Options) -> list[Stored]:
    """Return the best layouts of a product's operands that are stored otherwise."""
    if unfit(view) is not None or not is_product(view.blocks[0]):
        return []
    roles = product_of(whole_group(view, LANES))
    if isinstance(roles, Decline):
        return []
    formats = formats_of(roles, options)
    if isinstance(formats, Decline):
        return []
    weights = []
    for side, form in zip((roles.rows, roles.columns), formats, strict=True):
        if form.bytes != 2 and not with_whole_vectors(roles, side, roles.sums, form.vector):
            stored = _along_reduction(view, roles, side)
            if stored is not None:
                weights.append(stored)
    return weights


def _along_reduction(view: PrimView, roles: Roles, side: ProductOperand) -> Stored | None:
    contraction = roles.contraction
    value = side.access.value
    if value not in view.arguments or len(list(value.uses)) != 1 or side.access.outside is not None:
        return None
    position = [operand.value for operand in contraction.block.inputs].index(value)
    exprs = list(contraction.block.inputs[position].map.results)
    dims: dict[int | None, int] = {}
    for d, expr in enumerate(exprs):
        if not isinstance(expr, ir.AffineDimExpr) or expr.position in dims:
            return None
        dims[expr.position] = d
    last = [dims.get(contraction.sources.get(axis.id)) for axis in roles.sums]
    inner = [d for d in last if d is not None]
    if len(inner) != len(last):
        return None
    order = tuple([d for d in range(len(exprs)) if d not in inner] + inner)
    shape = tuple(side.access.shape[d] for d in order)
    transposed = ir.AffineMap.get(contraction.block.inputs[position].map.n_dims, 0, [exprs[d] for d in order])
    argument = view.arguments.index(value)

    def change(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array.transpose(order))

    return Stored(argument, position, shape, transposed, order, change, "transposed")
