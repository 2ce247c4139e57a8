"""The errors of operations and dialects."""

from __future__ import annotations


class DialectError(ValueError):
    """A dialect that cannot be registered or loaded; names the package that it comes from."""


class OpError(ValueError):
    """An operation that makes no sense, told in one sentence; raised by `infer` and `check`."""
