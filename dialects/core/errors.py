"""Errors of operations and dialects."""

from __future__ import annotations


class DialectError(ValueError):
    """Raised for a dialect that cannot be registered or loaded; names the package that provides it."""

    error_code = "MIR0201"
    remedy = "Install or repair the package that the message names."


class OpError(ValueError):
    """Raised by `infer` and `check` for an invalid operation, with one sentence that explains why."""


class OpMistake(OpError):
    """An exception that `infer` or `check` of an operation raised by mistake."""
