"""The relax dialect object and the base classes of its operations."""

from __future__ import annotations

from mirlo.dialects.core.dialect import Dialect
from mirlo.dialects.core.op import DialectOp

DIALECT = Dialect("relax", attributes=("dims",))


class RelaxOp(DialectOp):
    """An operator of the graph level: pure, on ranked tensors."""

    _dialect = DIALECT
    DEFAULT_RESULT = True
