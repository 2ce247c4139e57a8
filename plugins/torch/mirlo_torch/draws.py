"""Operators that draw random numbers, which PyTorch runs: compiled code cannot use its generators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo_torch.graph import target_name

if TYPE_CHECKING:
    import torch

SAVING, RESTORING = "higher_order.run_and_save_rng_state", "higher_order.run_with_rng_state"
"""Functions that call an operator and return the earlier generator state, or call it with a given state."""
_OPERATOR_AT = {SAVING: 0, RESTORING: 1}
"""The index of their operator argument, after which the operator's arguments follow."""


def called(node: torch.fx.Node) -> tuple[object, Sequence[object]]:
    """Return the operator that a node calls, directly or with a generator state, and its arguments."""
    at = _OPERATOR_AT.get(target_name(node.target))
    return (node.target, node.args) if at is None else (node.args[at], node.args[at + 1 :])


def is_random(node: torch.fx.Node) -> bool:
    """Return whether a node draws from a generator; attention, recurrence and dropout do if they drop elements."""
    import torch

    target, args = called(node)
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    assert isinstance(target, torch._ops.OpOverload), target
    arguments: dict[str, object] = {}
    for index, argument in enumerate(target._schema.arguments):
        default = argument.default_value if argument.has_default_value() else None
        arguments[argument.name] = args[index] if index < len(args) else node.kwargs.get(argument.name, default)
    if arguments.get("train", True) is False or arguments.get("training", True) is False:
        return False
    chances = [arguments[name] for name in ("dropout_p", "dropout") if name in arguments]
    return any(chance != 0 for chance in chances) if chances else True
