"""Operators that draw from a generator: compiled programs do not, since PyTorch's generators are PyTorch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def is_random(node: torch.fx.Node) -> bool:
    """Return whether a node draws from a generator; attention, recurrence and dropout do if they drop elements."""
    import torch

    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    assert isinstance(node.target, torch._ops.OpOverload), node.target
    given: dict[str, object] = {}
    for index, argument in enumerate(node.target._schema.arguments):
        default = argument.default_value if argument.has_default_value() else None
        given[argument.name] = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name, default)
    if given.get("train", True) is False or given.get("training", True) is False:
        return False
    chances = [given[name] for name in ("dropout_p", "dropout") if name in given]
    return any(chance != 0 for chance in chances) if chances else True
