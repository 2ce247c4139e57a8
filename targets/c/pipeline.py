"""The pass pipeline of target `c`, from relax to buffers."""

from __future__ import annotations

from mirlo.targets.pipelines import FOLD_ALL, FUSE, SIMPLIFY

PART_PASSES = (
    "legalize{target=c}",
    *FUSE,
    "elide-copies",
    "merge-prims",
    "remove-dead",
    "schedule{target=c}",
    "lower-loops",
    "lower-intrinsics{target=c}",
    "verify-bounds{guard=true}",
    "plan-memory{aliases=true}",
)
"""The passes for a part of a model, whose graph the host's pipeline has simplified."""
PASSES = (*SIMPLIFY, "view-rows", FOLD_ALL, "cse", "remove-dead", *PART_PASSES)
