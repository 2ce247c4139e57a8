"""The pass `keep-definitions`: keeps prim functions as they are before `schedule`, for `verify-schedule`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import is_tensor_form, prim_functions
from mirlo.passes.exact.operator_definition import graph_of_operator
from mirlo.passes.registry import Pass, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

DEFINITIONS = "tir.definitions"
"""Attribute of the module, inside of the module that is compiled, which holds the definitions of its kernels."""


@register_pass
@dataclass(frozen=True)
class KeepDefinitions(Pass):
    """Keep a copy of each prim function in tensor form in a module of its own, and operators that others compute.

    It runs before `schedule`. The pass `verify-schedule` compares each kernel with its definition, and removes the
    module.
    """

    name = "keep-definitions"
    contained = True
    trusted = True

    def run(self, op: ir.OpView, session: Session) -> None:
        body = op.operation.regions[0].blocks[0]
        functions = list(prim_functions(op))
        with ir.InsertionPoint(body), op.operation.location:
            kept = ir.Operation.create("builtin.module", attributes={DEFINITIONS: ir.UnitAttr.get()}, regions=1)
            inner = kept.regions[0].blocks.append()
            with ir.InsertionPoint(inner):
                for function in functions:
                    if is_tensor_form(function):
                        function.operation.clone()
                    else:
                        graph_of_operator(function.operation)


def definitions_of(module: ir.OpView) -> ir.Operation | None:
    """Return the module of definitions in a module."""
    for member in module.operation.regions[0].blocks[0].operations:
        if member.operation.name == "builtin.module" and DEFINITIONS in member.operation.attributes:
            kept: ir.Operation = member.operation
            return kept
    return None


def functions_by_name(kept: ir.Operation) -> dict[str, ir.Operation]:
    """Return the definitions in their module, by the names of kernels."""
    functions = [member.operation for member in kept.regions[0].blocks[0].operations]
    return {symbol_name(function): function for function in functions}
