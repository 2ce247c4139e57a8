"""Passes that the pipelines of all targets have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirlo.passes.targets import CompileOptions

SIMPLIFY = ("require-dims", "simplify", "fold-constant", "convert-layout", "simplify", "fold-constant")
"""The passes that every graph begins with."""
FOLD_ALL = "fold-constant{all=true}"
"""The pass that folds what would be computed from constants in each call, for targets that read no packed weights."""
FUSE = ("annotate-kinds", "fuse-ops", "fuse-tir", "canonicalize", "cse")
"""The passes from legalized operators to the prim functions that are scheduled."""
FUSE_WIDENED = tuple("fuse-ops{widen=true}" if name == "fuse-ops" else name for name in FUSE)
"""The same for targets whose attention reads keys and values of narrower types than it computes with."""


def lowered_by(name: str, pipeline: Callable[[CompileOptions], str]) -> Callable[[CompileOptions], str]:
    """Return the pipeline up to the last dialect of MLIR: that of a target, then the pass of this name."""

    def lowered(options: CompileOptions) -> str:
        from mirlo.passes.options import quote
        from mirlo.passes.pipeline import Pipeline

        target_options = getattr(options, "target_options", "")
        return str(
            Pipeline(pipeline(options)).append(f"{name}{{options={quote(target_options)}}}" if target_options else name)
        )

    return lowered
