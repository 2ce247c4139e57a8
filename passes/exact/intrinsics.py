"""Comparison of tensor intrinsics with their descriptions: what `tensorize` replaces loops by, and what they mean."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import is_tensor_form, prim_functions
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.kernel_definition import BlockDefinition
from mirlo.passes.exact.verdict import OUTSIDE, KernelVerdict
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.primitives.tensorize import TensorIntrin
from mirlo.passes.session import Session

if TYPE_CHECKING:
    from mirlo.passes.schedule.primitives.schedule import Schedule

PASSES = "schedule{target=llvm},lower-loops"


def compare_intrinsic(intrin: TensorIntrin) -> KernelVerdict:
    """Compare the loops of an implementation with the block that describes it, exactly.

    An implementation that calls a function of another language, or an instruction without a meaning modulo a prime, is
    outside.
    """
    module = ir.Module.create(ir.Location.unknown())
    with ir.InsertionPoint(module.body), ir.Location.unknown():
        means = intrin.means.build({}, "kernel")
        module.body.append(means.operation)
    if not is_tensor_form(means):
        return KernelVerdict(intrin.name, OUTSIDE, f"'{intrin.means.name}' describes it by loops, not by a block")
    definition = BlockDefinition(means.operation.clone())
    (block,) = definition.view.blocks

    def schedule(s: Schedule) -> None:
        outer = s.loops(block.name)[0]
        if block.is_reduction:
            s.decompose_reduction(block.name, outer)
        s.tensorize(outer, intrin.name)

    options = {"schedules": {"kernel": schedule}}
    with ir.Location.unknown():
        Pipeline(PASSES).run(module, Session(options=options, report=lambda *_: None))
    (scheduled,) = prim_functions(module.operation)
    return replace(KernelPair(definition, scheduled.operation).verify(), function=intrin.name)
