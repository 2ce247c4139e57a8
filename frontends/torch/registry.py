"""Converters of ATen's operators, by name; and the operators that are refused, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mirlo.dialects.core.installed import import_modules

Converter = Callable[..., object]
"""Takes an `AtenOperation` and the operator's arguments, and returns a tensor or a sequence of tensors.

Arguments that the schema lists before `*` come by position, with their defaults; others by name, if they are given.
"""
CONVERTERS: dict[str, Converter] = {}
REFUSED: dict[str, str] = {}
"""Why an operator is not supported, by its name without overload."""


F = TypeVar("F", bound=Converter)


def converter(*names: str) -> Callable[[F], F]:
    """Register a function that converts these operators: `aten.add.Tensor`."""

    def register(function: F) -> F:
        for name in names:
            CONVERTERS[name] = function
        return function

    return register


def reason_of(name: str) -> str:
    """Return why an operator is not supported."""
    return REFUSED.get(name) or REFUSED.get(name.rpartition(".")[0]) or "has no converter"


def load_converters() -> None:
    """Import all converters."""
    import_modules("mirlo.frontends.torch.ops")
