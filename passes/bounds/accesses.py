"""Accesses of memory: which elements of a buffer an operation reads or writes, and under which mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import walk
from mirlo.runtime.records import dataclass

MAX_KERNEL_STEPS = 4_000
"""The most eliminations for all accesses of a kernel, a second."""


@dataclass(frozen=True)
class Access:
    """An access to `lanes` contiguous elements of a buffer, from an index on."""

    op: ir.Operation
    buffer: ir.Value
    indices: tuple[ir.Value, ...]
    kind: str
    """"load" or "store"."""
    lanes: tuple[int, ...] = ()
    """The shape of the vector of elements, along the last dims of the buffer."""
    mask: ir.Value | None = None
    """Which lanes are accessed; None for all."""
    offsets: ir.Value | None = None
    """A vector of offsets, of which each lane adds its own to the last index."""


@dataclass(frozen=True)
class UnprovenAccess:
    """An access that is not proven to be in bounds: what it is, why, and the facts that were known."""

    access: str
    """The operation, as in `vector.store`, and its buffer."""
    why: str
    facts: tuple[tuple[str, str], ...] = ()
    from_data: bool = False
    """Whether its index depends on elements of a buffer."""
    location: ir.Location | None = field(default=None, compare=False)

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts)
        return f"{self.access}: {self.why}" + (f" ({facts})" if facts else "")


def _scalar_load(op: ir.Operation) -> Access:
    operands = list(op.operands)
    return Access(op, operands[0], tuple(operands[1:]), "load")


def _scalar_store(op: ir.Operation) -> Access:
    operands = list(op.operands)
    return Access(op, operands[1], tuple(operands[2:]), "store")


def _vector_load(op: ir.Operation) -> Access:
    operands = list(op.operands)
    return Access(op, operands[0], tuple(operands[1:]), "load", tuple(op.results[0].type.shape))


def _vector_store(op: ir.Operation) -> Access:
    operands = list(op.operands)
    return Access(op, operands[1], tuple(operands[2:]), "store", tuple(operands[0].type.shape))


def _masked_load(op: ir.Operation) -> Access:
    operands = list(op.operands)
    lanes = tuple(op.results[0].type.shape)
    return Access(op, operands[0], tuple(operands[1:-2]), "load", lanes, mask=operands[-2])


def _masked_store(op: ir.Operation) -> Access:
    operands = list(op.operands)
    lanes = tuple(operands[-1].type.shape)
    return Access(op, operands[0], tuple(operands[1:-2]), "store", lanes, mask=operands[-2])


def _gather(op: ir.Operation) -> Access:
    operands = list(op.operands)
    return Access(op, operands[0], tuple(operands[1:-3]), "load", mask=operands[-2], offsets=operands[-3])


def _scatter(op: ir.Operation) -> Access:
    operands = list(op.operands)
    return Access(op, operands[0], tuple(operands[1:-3]), "store", mask=operands[-2], offsets=operands[-3])


ACCESSES: dict[str, Callable[[ir.Operation], Access]] = {
    "memref.load": _scalar_load,
    "memref.store": _scalar_store,
    "vector.load": _vector_load,
    "vector.store": _vector_store,
    "vector.maskedload": _masked_load,
    "vector.maskedstore": _masked_store,
    "vector.gather": _gather,
    "vector.scatter": _scatter,
}
"""The operations that access elements of buffers."""
HARMLESS = frozenset(
    [
        "memref.prefetch",  # of an address that is not mapped: does nothing
        "memref.dim",
        "memref.alloca",
        "memref.dealloc",
        "memref.alloca_scope",
        "memref.extract_aligned_pointer_as_index",
        "memref.collapse_shape",
        "memref.expand_shape",
        "memref.cast",
        "memref.view",
        "memref.assume_alignment",
    ]
)
"""Operations on buffers that access no element."""
_QUIET_DIALECTS = frozenset(["arith", "math", "affine"])
"""Dialects whose operations, but for casts and choices, make indices of indices only."""
_CASTS_AND_CHOICES = frozenset(["arith.index_cast", "arith.index_castui", "arith.select"])
_QUIET_VECTORS = frozenset(["vector.broadcast", "vector.fma", "vector.shuffle"])
"""Operations on vectors whose results have the elements of their operands, at positions that are attributes."""
_STORES = frozenset(["memref.store", "vector.store", "vector.maskedstore"])
"""Accesses without results."""
_BY_LANES = frozenset(["vector.gather", "vector.scatter"])


@dataclass
class ScannedAccesses:
    """The operations of a kernel that may access memory."""

    operations: list[ir.Operation] = field(default_factory=list)
    """Those that `ACCESSES` reads, and those on buffers of which nothing is known, in the order of the kernel."""
    makes_indices: bool = False
    """Whether there are operations that make an index of data, or that choose one by data: few kernels have any."""


def scan_accesses(function: ir.Operation) -> ScannedAccesses:
    """Find the operations that may access memory, in one walk."""
    result = ScannedAccesses()
    # By name, whether operations are of interest: a kernel has thousands, of few names.
    noted: dict[str, bool] = {}

    def visit(op: ir.Operation) -> ir.WalkResult:
        name = op.name
        is_noted = noted.get(name)
        if is_noted is None:
            is_noted = noted[name] = not _is_quiet(name)
        if not is_noted:
            return ir.WalkResult.ADVANCE
        if name in _STORES:
            result.operations.append(op)
            return ir.WalkResult.ADVANCE
        if not result.makes_indices and _makes_indices(op, name):
            result.makes_indices = True
        if name in ACCESSES or is_unknown_access(op):
            result.operations.append(op)
        return ir.WalkResult.ADVANCE

    walk(function, visit, ir.WalkOrder.PRE_ORDER)
    return result


def is_unknown_access(op: ir.Operation) -> bool:
    """Return whether an operation may access elements of buffers in a way that `ACCESSES` does not describe."""
    dialect, _, _ = op.name.partition(".")
    if dialect not in ("memref", "vector") or op.name in HARMLESS or op.name in ACCESSES:
        return False
    return any(isinstance(value.type, ir.MemRefType) for value in op.operands)


def _is_quiet(name: str) -> bool:
    dialect, _, _ = name.partition(".")
    in_quiet_dialect = dialect in _QUIET_DIALECTS and name not in _CASTS_AND_CHOICES
    return in_quiet_dialect or name in HARMLESS or name in _QUIET_VECTORS


def _makes_indices(op: ir.Operation, name: str) -> bool:
    """Return whether an operation has an index as a result though its operands are not all indices."""
    if name in _BY_LANES:
        return True
    if not any(is_index(value.type) for value in op.results):
        return name == "scf.while" and len(op.operands) > 0
    is_loop_by_data = len(op.regions) > 0 and name != "scf.for"
    return is_loop_by_data or not all(is_index(value.type) for value in op.operands)


def is_index(kind: ir.Type) -> bool:
    """Return whether values of a type are indices, or vectors of them."""
    return isinstance(kind.element_type if isinstance(kind, ir.VectorType) else kind, ir.IndexType)
