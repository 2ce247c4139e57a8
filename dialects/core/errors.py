"""Errors of operations and dialects."""

from __future__ import annotations


class DialectError(ValueError):
    """Raised for a dialect that cannot be registered or loaded; names the package that provides it."""


class OpError(ValueError):
    """Raised by `infer` and `check` for an invalid operation, with one sentence that explains why."""


class OpMistake(OpError):
    """An exception that `infer` or `check` of an operation raised by mistake."""
