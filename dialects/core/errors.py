"""The error of an operation."""

from __future__ import annotations


class OpError(ValueError):
    """An operation that makes no sense, told in one sentence; raised by `infer` and `check`."""
