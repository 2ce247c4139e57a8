"""The pass pipeline of target `c`, from relax to buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.targets.pipelines import FUSE, SIMPLIFY

if TYPE_CHECKING:
    from mirlo.passes.targets import CompileOptions

PART_PASSES = (
    "legalize{target=c}",
    *FUSE,
    "remove-dead",
    "schedule{target=c}",
    "lower-loops",
    "lower-intrinsics{target=c}",
    "verify-bounds{guard=true}",
    "plan-memory{aliases=true}",
)
"""The passes for a part of a model, whose graph the host's pipeline has simplified."""
PASSES = (*SIMPLIFY, "cse", "remove-dead", *PART_PASSES)


def compile_pipeline(options: CompileOptions | None = None) -> str:
    """Return the pipeline from relax to buffers, the input of the printer."""
    return f"builtin.module({','.join(PASSES)})"
