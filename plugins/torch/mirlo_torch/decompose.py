"""Decomposition of operators that have no converter into those that have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mirlo_torch.declared_names import load_converters
from mirlo_torch.errors import UnsupportedAten
from mirlo_torch.graph import target_name
from mirlo_torch.locations import origin_of, source_line
from mirlo_torch.registry import DECOMPOSITIONS, has_converter, reason_of

if TYPE_CHECKING:
    import torch

MAX_ROUNDS = 3
"""Most rounds of decomposition, since results may contain further operators to decompose."""


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program whose operators have converters, as far as PyTorch can decompose the others.

    It has no operators that write and no regions of autocast. An operator that has a converter is kept whole. Raises
    `UnsupportedAten` for an operator that nothing decomposes, before the program is traced for it.
    """
    load_converters()
    for number in range(MAX_ROUNDS):
        targets = _targets(program)
        missing = {target for target in targets if not has_converter(target_name(target))} | _updating(program)
        table = _table(missing)
        _require_converters(program, {target for target in missing if target not in table and _is_final(target)})
        if not table and (number or not _must_be_traced(program, targets)):
            break
        try:
            program = program.run_decompositions(table)
        except Exception as error:
            raise UnsupportedAten("", f"PyTorch cannot decompose the program: {error}") from error
    return program


def _must_be_traced(program: torch.export.ExportedProgram, targets: set[torch._ops.OpOverload]) -> bool:
    """Return whether a program has operators that write, or regions with `torch.autocast`: tracing replaces them."""
    regions = (target_name(node.target) for node in program.graph.nodes if node.op == "call_function")
    return any(target._schema.is_mutable for target in targets) or "higher_order.wrap_with_autocast" in regions


UPDATING, RUNNING_MEAN, IN_TRAINING = "aten.batch_norm.default", 3, 5
"""The operator with a converter that may write, and the argument positions of its statistics and mode."""


def _updating(program: torch.export.ExportedProgram) -> set[torch._ops.OpOverload]:
    """Return the norms that update running statistics, which PyTorch decomposes into writes of the statistics."""
    return {
        node.target for node in program.graph.nodes
        if target_name(node.target) == UPDATING and node.args[IN_TRAINING] and node.args[RUNNING_MEAN] is not None
    }  # fmt: skip


def _targets(program: torch.export.ExportedProgram) -> set[torch._ops.OpOverload]:
    """Return the operators of a program and of the graphs in it."""
    modules = [module for module in program.graph_module.modules() if hasattr(module, "graph")]
    return {
        node.target for module in modules for node in module.graph.nodes
        if node.op == "call_function" and hasattr(node.target, "_schema")
    }  # fmt: skip


def _is_final(target: torch._ops.OpOverload) -> bool:
    """Return whether an operator without a decomposition remains after tracing.

    Tracing replaces operators that write, and those of other namespaces, such as accesses to tensors in a subclass.
    """
    return target.namespace == "aten" and not target._schema.is_mutable


def _require_converters(program: torch.export.ExportedProgram, without: set[torch._ops.OpOverload]) -> None:
    """Raise an error for the first operator on tensors without a converter; sizes need none."""
    import torch

    nodes = [
        node for node in program.graph.nodes
        if node.target in without and node.users and isinstance(node.meta.get("val"), (torch.Tensor, list, tuple))
    ]  # fmt: skip
    for node in nodes[:1]:
        name, line = target_name(node.target), source_line(node)
        at = f"; {line}" if line else ""
        text = f"program: operator '{name}' (node '{node.name}'): {reason_of(name)}{at}"
        raise UnsupportedAten(name, text, [origin_of(each) for each in nodes])


def _table(missing: set[torch._ops.OpOverload]) -> dict[torch._ops.OpOverload, Callable[..., object]]:
    """Return PyTorch's decompositions of all operators without a converter, if any applies."""
    if not missing:
        return {}
    table = _all_decompositions()
    for target in missing:
        if target not in table and target._can_decompose():
            table[target] = target.decompose
    if not any(target in table for target in missing):
        return {}
    return {
        target: function for target, function in table.items()
        if target in missing or not has_converter(target_name(target))
    }  # fmt: skip


def _all_decompositions() -> dict[torch._ops.OpOverload, Callable[..., object]]:
    """Return the decomposition of each operator that has one; ours take precedence over PyTorch's."""
    from torch._decomp import decomposition_table
    from torch.export import default_decompositions

    ours = {_operator(name): function for name, function in DECOMPOSITIONS.items()}
    return {**decomposition_table, **default_decompositions(), **ours}


def decompositions_of_training() -> dict[torch._ops.OpOverload, Callable[..., object]]:
    """Return the decompositions for a graph that is divided into forward and backward afterwards.

    Operators that draw random numbers stay, since decompositions draw different ones.
    """
    import torch

    load_converters()
    table = _all_decompositions()
    for target in list(table):
        is_random = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
        if is_random or has_converter(target_name(target)):
            del table[target]
    return table


def _operator(name: str) -> torch._ops.OpOverload:
    """Return an operator by its name."""
    import torch

    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
