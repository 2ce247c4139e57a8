"""Passes that the pipelines of all targets have in common."""

from __future__ import annotations

SIMPLIFY = ("simplify", "fold-constant", "convert-layout", "simplify", "fold-constant")
"""The passes that every graph begins with."""
FUSE = ("annotate-kinds", "fuse-ops", "fuse-tir", "canonicalize", "cse")
"""The passes from legalized operators to the prim functions that are scheduled."""
