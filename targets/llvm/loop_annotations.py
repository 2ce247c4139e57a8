"""Annotations of loops for LLVM: register tiles whose loops it leaves as they are."""

from __future__ import annotations

from mirlo.dialects.bindings import ir

ON_LOOP = "llvm.loop_annotation"
"""Attribute of an `scf.for`, which upstream passes move to the branch at its end."""
ON_BRANCH = "loop_annotation"
"""Attribute of a branch of the LLVM dialect, which becomes metadata of LLVM IR."""


def keep_rolled(loop: ir.Operation) -> None:
    """Let LLVM not unroll a loop: its body is work enough for the processor, and copies take time to compile."""
    loop.attributes[ON_LOOP] = ir.Attribute.parse("#llvm.loop_annotation<unroll = <disable = true>>")


def annotate_branches(module: ir.Module) -> None:
    """Give the branches of the LLVM dialect the annotations of their loops."""
    for op in module.body.operations:
        for region in op.operation.regions:
            for block in region.blocks:
                if not len(block.operations):
                    continue
                attributes = block.operations[len(block.operations) - 1].operation.attributes
                if ON_LOOP in attributes:
                    attributes[ON_BRANCH] = attributes[ON_LOOP]
                    del attributes[ON_LOOP]
