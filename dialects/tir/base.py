"""The tir dialect object and the base class of its operations."""

from __future__ import annotations

from mirlo.dialects.core.dialect import Dialect
from mirlo.dialects.core.op import DialectOp

DIALECT = Dialect("tir")


class TirOp(DialectOp):
    """An operation on the level of loops."""

    _dialect = DIALECT
