"""Errors of the import of StableHLO."""

from __future__ import annotations

from mirlo.extend.frontend import FrontendError


class StablehloImportError(FrontendError):
    """A program that cannot be imported; the text names the operations, their locations and the reason."""
