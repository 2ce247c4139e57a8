"""The relax dialect object and the base classes of its operations."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dialect import Dialect
from mirlo.dialects.core.op import DialectOp

DIALECT = Dialect("relax", attributes=("dims",), types=("object",))
OBJECT = "!relax.object"
"""The type of values that exist at run time only: a tensor of strings, a sequence, an optional value."""


class RelaxOp(DialectOp):
    """A graph-level operator: pure, on ranked tensors."""

    _dialect = DIALECT
    DEFAULT_RESULT = True


def object_type() -> ir.Type:
    """Return `!relax.object` in the current context."""
    return ir.Type.parse(OBJECT)


def is_object(mlir_type: ir.Type) -> bool:
    return str(mlir_type) == OBJECT
