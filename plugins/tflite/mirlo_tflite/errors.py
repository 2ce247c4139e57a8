"""Errors of the import of TOSA."""

from __future__ import annotations

from mirlo.extend.frontend import FrontendError


class TosaImportError(FrontendError):
    """A program that cannot be imported; the text names the operations, where they are, and why."""
