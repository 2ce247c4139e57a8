"""Conventions of prim functions in buffer form: scratch memory on the stack or in a workspace parameter."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim

WORKSPACE = "tir.workspace"
"""Attribute of a buffer-form prim function: bytes of scratch memory of the parameter after the outputs; an integer,
or a dim as text."""
PARALLEL = "tir.parallel"
SHARED = "tir.shared"
"""Unit attribute of a loop whose iterations may run in parallel."""
UNPROVEN = "tir.unproven"
"""Attribute of a prim function: why its accesses by data are in bounds, where `verify-bounds` does not find a proof.

The pass records such accesses with this reason, and does not refuse them.
"""
FOREIGN = "tir.foreign"
"""Unit attribute of a prim function that is not Mirlo's: a user's, or one of a rule of a user or plug-in.

Its accesses by data must be limited, as `verify-bounds` reports. Those of other functions are tested at run time where
there is no proof.
"""
INPLACE = "tir.inplace"
"""Attribute of a prim function: positions of the inputs that may alias its output.

Each element of such an input is read only for the same element of the output, or before any is written. A schedule
that computes an element of the output twice must remove the attribute.
"""
START = "tir.start"
"""Unit attribute of the initial copy of an input to the output, which does nothing if the two alias."""
STACK_LIMIT = 16 * 1024
"""Most bytes of scratch buffers on the stack, all together."""
ALIGNMENT = 64
UNBOUNDED = 1 << 48
"""Elements of a buffer of dynamic size: exceeds any memory, and no address overflows."""


def buffer_type(shape: Sequence[Dim], element_type: ir.Type) -> ir.MemRefType:
    """Return the `memref` of a contiguous tensor; one-dimensional if dims are dynamic, and unbounded if its size is.

    An empty buffer, of which no element is ever read, starts with its dim of 0: upstream's conversion to LLVM loses
    functions with a parameter such as `memref<3x0xf32>`.
    """
    elements = D.product(list(shape))
    if not isinstance(elements, int):
        return ir.MemRefType.get([UNBOUNDED], element_type)
    dims = [dim for dim in shape if isinstance(dim, int)]
    if len(dims) < len(shape):  # one dim is 0, whatever the others are
        return ir.MemRefType.get([0], element_type)
    if elements == 0:
        dims = [0] + [1] * (len(dims) - 1)
    return ir.MemRefType.get(dims, element_type)


def element_bytes(mlir_type: ir.Type) -> int:
    """Return the bytes of one stored element."""
    if isinstance(mlir_type, ir.IndexType):
        return 8
    return int(max(1, (mlir_type.width + 7) // 8))


def tensor_bytes(shape: Sequence[Dim], element_type: ir.Type) -> Dim:
    """Return the bytes of a contiguous tensor of these stored elements."""
    return D.product(list(shape)) * element_bytes(element_type)


def aligned(size: Dim, alignment: int = ALIGNMENT) -> Dim:
    """Return the next multiple of the alignment."""
    return D.ceildiv(size, alignment) * alignment


def workspace_of(function: ir.OpView) -> Dim:
    """Return the bytes of scratch memory that a prim function in buffer form needs."""
    attributes = function.operation.attributes
    if WORKSPACE not in attributes:
        return 0
    workspace = attributes[WORKSPACE]
    return workspace.value if isinstance(workspace, ir.IntegerAttr) else D.parse(ir.StringAttr(workspace).value)


def workspace_attribute(size: Dim) -> ir.Attribute:
    if isinstance(size, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), size)
    return ir.StringAttr.get(str(size))


def workspace_type(size: Dim) -> ir.Type:
    """Return the type of a workspace parameter with this many bytes."""
    result: ir.Type = buffer_type([size], ir.IntegerType.get_signless(8))
    return result


STORED_TO = {"memref.store": 1, "vector.store": 1, "vector.maskedstore": 0, "vector.scatter": 0}
"""Operations that store elements, and the position of the buffer among their operands; indices follow it."""


def buffer_bytes(memref_type: ir.Type) -> int:
    size = element_bytes(memref_type.element_type)
    for dim in memref_type.shape:
        size *= dim
    return size
