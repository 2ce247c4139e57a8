"""What a planned module calls its functions: for those who make code of it, and need nothing of what planned it."""

from __future__ import annotations

SIZES_SUFFIX = "_sizes"
"""After the name of a function: the one that gives the sizes of its results and its arena."""
ALLOCATE, CHECK = "mirlo_allocate", "mirlo_check"
"""The functions that give memory of sizes that data told, and that end a call for such a size."""
FORK = "tir.fork"
"""Attribute of a function without body that runs a region on several threads."""
