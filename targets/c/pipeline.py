"""The pass pipeline of target `c`, from relax to buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirlo.passes.targets import CompileOptions

PASSES = (
    "simplify",
    "fold-constant",
    "convert-layout",
    "simplify",
    "fold-constant",
    "cse",
    "remove-dead",
    "legalize{target=c}",
    "annotate-kinds",
    "fuse-ops",
    "fuse-tir",
    "canonicalize",
    "cse",
    "remove-dead",
    "schedule{target=c}",
    "lower-loops",
    "lower-intrinsics{target=c}",
    "plan-memory{aliases=true}",
)


def compile_pipeline(options: CompileOptions | None = None) -> str:
    """Return the pipeline from relax to buffers, the input of the printer."""
    return f"builtin.module({','.join(PASSES)})"
