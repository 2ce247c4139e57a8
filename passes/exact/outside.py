"""The error for a construct of a kernel that has no exact meaning here."""

from __future__ import annotations

from mirlo.runtime.errors import MirloError


class OutsideError(MirloError):
    """Raised for an operation, type or attribute that is not translated: the kernel is reported as outside."""

    error_code = "MIR0413"
    remedy = "The kernel is outside of what can be compared exactly: test its numbers instead."
