"""Converters of operations, by name; and the operations that are refused, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.core.installed import import_modules

if TYPE_CHECKING:
    from mirlo.frontends.stablehlo.operation import StablehloOperation
    from mirlo.frontends.tensor import Tensor

    Converter = Callable[[StablehloOperation], "Tensor | Sequence[Tensor]"]

CONVERTERS: dict[str, Converter] = {}
REFUSED: dict[str, str] = {}
"""Why an operation is not supported."""


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Register a function that converts these operations: `add`, or `chlo.erf` for a composite of that name."""

    def register(function: Converter) -> Converter:
        for name in names:
            CONVERTERS[name] = function
        return function

    return register


def load_converters() -> None:
    """Import all converters."""
    import_modules("mirlo.frontends.stablehlo.ops")
