"""Which file makes the step of an instruction."""

from __future__ import annotations

from emulator.access import ACCESS
from emulator.cluster import CLUSTER, cluster_barrier
from emulator.copies import COPIES
from emulator.errors import PtxError
from emulator.floats import float_builder
from emulator.integers import integer_builder
from emulator.matrix import MATRIX
from emulator.mbarriers import MBARRIERS, wait_for_phase
from emulator.moves import move_builder
from emulator.prepare import Preparation, Step
from emulator.tensormemory import TENSOR_MEMORY
from emulator.text import Instruction
from emulator.types import FLOATS
from emulator.warp import WAITS, WARP, WaitBuilder, warp_barrier, whole_warps
from emulator.wgmma import WGMMA

TABLES = (ACCESS, WARP, COPIES, MATRIX, CLUSTER, MBARRIERS, WGMMA, TENSOR_MEMORY)
WHOLE_WARPS = frozenset({"ldmatrix", "stmatrix", "mma", "wgmma", "setmaxnreg"})
"""Instructions that all threads of a warp execute together."""
MEETING = frozenset(WAITS) | WHOLE_WARPS | {"mbarrier", "tcgen05"}


def builder_of(p: Preparation, i: Instruction) -> Step:
    """Return the step that executes an instruction."""
    if _meets_in_warp(i):
        return lambda group: None
    for table in TABLES:
        if i.name in table:
            return table[i.name](p, i)
    build = move_builder(i.name, i.kind)
    if build is None:
        build = float_builder(i, p.version) if i.kind in FLOATS else integer_builder(i)
    if build is None:
        raise PtxError(f"'{i.opcode}' is not known")
    return build(p, i)


def wait_builder_of(i: Instruction) -> WaitBuilder | None:
    """How threads meet at an instruction; None where they do not."""
    if _meets_in_warp(i):
        return warp_barrier
    if i.name == "barrier" and i.has("cluster"):
        return cluster_barrier
    if i.name == "mbarrier":
        return wait_for_phase
    together = i.name in WHOLE_WARPS or (i.name == "tcgen05" and i.has("aligned"))
    return WAITS.get(i.name) or (whole_warps if together else None)


def _meets_in_warp(i: Instruction) -> bool:
    return i.name in ("bar", "barrier") and "warp" in i.modifiers
