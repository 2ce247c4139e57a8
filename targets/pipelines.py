"""Passes that the pipelines of all targets have in common."""

from __future__ import annotations

SIMPLIFY = ("simplify", "fold-constant", "convert-layout", "simplify", "fold-constant")
"""The passes that every graph begins with."""
FUSE = ("annotate-kinds", "fuse-ops", "fuse-tir", "canonicalize", "cse")
"""The passes from legalized operators to the prim functions that are scheduled."""
FUSE_WIDENED = tuple("fuse-ops{widen=true}" if name == "fuse-ops" else name for name in FUSE)
"""The same for targets whose attention reads keys and values of narrower types than it computes with."""
