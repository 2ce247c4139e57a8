"""Errors of the import of PyTorch's programs."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import FrontendError


class TorchImportError(FrontendError):
    """A model of PyTorch that cannot be converted."""


class UnsupportedAten(TorchImportError):
    """An operator, or a form of it, without a converter; the text names it and the user's line."""

    def __init__(self, operator: str, text: str, origins: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.operator = operator
        self.origins = tuple(origins)
        """Names of the nodes of the exported module's graph that call the operator, if that module is a graph."""
