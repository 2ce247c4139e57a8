"""Which file makes the step of an instruction."""

from __future__ import annotations

from mirlo.testing.ptx.access import ACCESS
from mirlo.testing.ptx.cluster import CLUSTER, cluster_barrier
from mirlo.testing.ptx.copies import COPIES
from mirlo.testing.ptx.errors import PtxError
from mirlo.testing.ptx.floats import float_builder
from mirlo.testing.ptx.integers import integer_builder
from mirlo.testing.ptx.matrix import MATRIX
from mirlo.testing.ptx.mbarriers import MBARRIERS, wait_for_phase
from mirlo.testing.ptx.moves import move_builder
from mirlo.testing.ptx.prepare import KernelPreparation, Step
from mirlo.testing.ptx.residue_instructions import residue_builder
from mirlo.testing.ptx.tensormemory import TENSOR_MEMORY
from mirlo.testing.ptx.text import PtxInstruction
from mirlo.testing.ptx.types import FLOATS
from mirlo.testing.ptx.warp import WAITS, WARP, WaitBuilder, warp_barrier, whole_warps
from mirlo.testing.ptx.wgmma import WGMMA

TABLES = (ACCESS, WARP, COPIES, MATRIX, CLUSTER, MBARRIERS, WGMMA, TENSOR_MEMORY)
WHOLE_WARPS = frozenset({"ldmatrix", "stmatrix", "mma", "wgmma", "setmaxnreg"})
"""Instructions that all threads of a warp execute together."""
MEETING = frozenset(WAITS) | WHOLE_WARPS | {"mbarrier", "tcgen05"}


def builder_of(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Return the step that executes an instruction."""
    if _meets_in_warp(i):
        return lambda group: None
    for table in TABLES:
        if i.name in table:
            return table[i.name](p, i)
    build = residue_builder(p, i) if p.residues is not None else None
    if build is None:
        build = move_builder(i.name, i.kind)
    if build is None:
        build = float_builder(i, p.version) if i.kind in FLOATS else integer_builder(i)
    if build is None:
        raise PtxError(f"'{i.opcode}' is not known")
    return build(p, i)


def wait_builder_of(i: PtxInstruction) -> WaitBuilder | None:
    """Return how threads wait for each other at an instruction; None where they do not."""
    if _meets_in_warp(i):
        return warp_barrier
    if i.name == "barrier" and i.has("cluster"):
        return cluster_barrier
    if i.name == "mbarrier":
        return wait_for_phase
    together = i.name in WHOLE_WARPS or (i.name == "tcgen05" and i.has("aligned"))
    return WAITS.get(i.name) or (whole_warps if together else None)


def _meets_in_warp(i: PtxInstruction) -> bool:
    return i.name in ("bar", "barrier") and "warp" in i.modifiers
