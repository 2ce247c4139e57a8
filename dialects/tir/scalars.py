"""Scalar operations and constants, which `dialects/core/value.py` defines."""

from __future__ import annotations

from mirlo.dialects.core.value import Value, compare, create, emit_constant, select

__all__ = ["Value", "compare", "create", "emit_constant", "select"]
