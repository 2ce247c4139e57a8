"""Where a kernel computes a function, for which a random one stands."""

from __future__ import annotations

from collections.abc import Mapping

from mirlo.dialects.bindings import ir
from mirlo.runtime.records import dataclass

FUNCTION = "common function"
"""The name of the random function."""


@dataclass(frozen=True)
class FunctionCalls:
    """Where a function is computed: its operand for each result, and the values between both."""

    operands: Mapping[ir.Value, ir.Value]
    inner: frozenset[ir.Value]
