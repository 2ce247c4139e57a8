"""Errors of the import of PyTorch's programs."""

from __future__ import annotations

from mirlo.frontends.foreign import FrontendError


class TorchImportError(FrontendError):
    """A model of PyTorch that cannot be converted."""


class UnsupportedAten(TorchImportError):
    """An operator that has no converter, or not in this form; the text names it and the user's line."""

    def __init__(self, operator: str, text: str) -> None:
        super().__init__(text)
        self.operator = operator
