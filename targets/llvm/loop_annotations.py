"""Annotations of loops for LLVM: register tiles and vectors whose loops it leaves as they are."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.passes.schedule.loops import LOOP_ANNOTATION

ON_BRANCH = "loop_annotation"
"""Attribute of a branch of the LLVM dialect, which becomes metadata of LLVM IR."""


def annotate_branches(module: ir.Module) -> None:
    """Give the branches of the LLVM dialect the annotations of their loops."""
    for op in module.body.operations:
        for region in op.operation.regions:
            for block in region.blocks:
                if not len(block.operations):
                    continue
                attributes = block.operations[len(block.operations) - 1].operation.attributes
                if LOOP_ANNOTATION in attributes:
                    attributes[ON_BRANCH] = attributes[LOOP_ANNOTATION]
                    del attributes[LOOP_ANNOTATION]
