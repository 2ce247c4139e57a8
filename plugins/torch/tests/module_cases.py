"""Modules of one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import mirlo

F = torch.nn.functional
DYNAMIC = torch.export.Dim.DYNAMIC


class Calls(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, *rest: Any) -> Any:
        return self.function(x, *rest)


def compiled(module: Any, *args: Any, dynamic_shapes: Any = None) -> Any:
    """Compile a module, or an exported program."""
    if isinstance(module, torch.nn.Module):
        return mirlo.compile(module.eval(), args=args, dynamic_shapes=dynamic_shapes, cache=False)
    return mirlo.compile(module, cache=False)


def require_close(found: Any, expected: Any) -> None:
    """Require equal structure and close elements."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
