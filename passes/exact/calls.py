"""The calls of kernels in a graph: their nodes, operands that are constants of integers, and checks of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.bounds.calls import calls_in, dims_in_callee
from mirlo.passes.exact.memory import Array
from mirlo.passes.exact.valid_sizes import Facts
from mirlo.passes.exact.values import element_of
from mirlo.passes.graph.constants import constant_value
from mirlo.passes.locations import node_labels
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

MOST_CALLS = 16
"""The most calls of a kernel whose constants are kept; kernels are compared with those of one call in each round."""


@dataclass
class CalledKernel:
    """The calls of one kernel."""

    nodes: dict[str, None] = field(default_factory=dict)
    constants: list[Mapping[int, Array]] = field(default_factory=list)
    """For each call, its operands that are constants of integers, by position."""
    facts: dict[Facts, None] = field(default_factory=dict)
    """For each call, the dims that its caller checks are not negative before it runs."""


def called_kernels(module: ir.Operation, session: Session) -> dict[str, CalledKernel]:
    """Return the kernels that the graph functions of a module call."""
    kernels: dict[str, CalledKernel] = {}
    for function in module.regions[0].blocks[0].operations:
        if function.operation.name != "func.func" or is_prim_func(function):
            continue
        for op, facts in calls_in(function.operation):
            kernel = kernels.setdefault(op.opview.callee, CalledKernel())
            kernel.nodes.update(dict.fromkeys(node_labels(op.location)))
            if len(kernel.constants) < MOST_CALLS:
                kernel.constants.append(_constants(op, session))
                kernel.facts[dims_in_callee(op, facts) if op.opview.symbols else tuple(facts)] = None
    return kernels


def _constants(call: ir.Operation, session: Session) -> dict[int, Array]:
    constants = {}
    for i, value in enumerate(call.operands):
        if isinstance(element_of(value.type), ir.IntegerType):
            array = constant_value(value, session)
            if array is not None:
                constants[i] = array
    return constants
