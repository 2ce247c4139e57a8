"""The pass `require-dims`: checks the requirements of operators on run-time sizes in each call.

The conditions are those that `infer` of each operator states (`dialects/core/conditions.py`), also of a plug-in's
operator. Those that numbers decide are errors of the verifier; each other one becomes a `relax.require_dims` in front
of its operator.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import graph_operations
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.dynamic import RequireDims
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.locations import names_of
from mirlo.passes.registry import Pass, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

Limit = tuple[Dim, Dim]
"""Two dims of which the first must not be larger than the second."""


@register_pass
@dataclass(frozen=True)
class RequireDimsPass(Pass):
    """Have each call check the requirements of operators on sizes that only the run time knows.

    A condition that an earlier operation checks is not checked again.
    """

    name = "require-dims"
    keeps_layers = True
    contained = True
    trusted = True

    def run(self, op: ir.OpView, session: Session) -> None:
        require_dims(op)


def require_dims(op: ir.OpView) -> None:
    """Put a `relax.require_dims` before each operator of a module's functions that needs one."""
    operators = graph_operations().keys()
    for block in op.operation.regions[0].blocks:
        for function in block.operations:
            if function.operation.name == "func.func" and not is_prim_func(function):
                for body in function.operation.regions[0].blocks:
                    _visit(body, operators, frozenset())


def _visit(block: ir.Block, operators: Collection[str], outside: frozenset[Limit]) -> None:
    """Check the conditions of a block's operators, and of those in regions; those in `outside` are already checked."""
    checked = set(outside)
    for op in list(block.operations):
        if op.operation.name == RequireDims.OPERATION_NAME:
            checked.update(op.limits)
        elif op.operation.name in operators:
            _require(op, checked)
        for region in op.operation.regions:
            for nested in region.blocks:
                _visit(nested, operators, frozenset(checked))


def _require(op: ir.OpView, checked: set[Limit]) -> None:
    if all(isinstance(dim, int) for dim in op.every_dim()):
        return
    for condition in op.size_conditions():
        if (condition.low, condition.high) not in checked:
            names = ", ".join(names_of(op.operation.location)) or op.operation.name
            required = RequireDims.build(
                dims=(condition.low,), bounds=(condition.high,), what=f"{names}: {condition.text}", result_types=[],
                loc=op.operation.location, ip=ir.InsertionPoint(op),
            )  # fmt: skip
            checked.update(required.limits)
