"""The pass `apply-tuning`: prim functions are told what measurements found best for them.

A target says what can be chosen for a prim function, as numbers by name; what was measured best is in a database, under
a key that tells the function by its content, the target and the machine. The pass leaves the numbers on the function as
`tir.tuned`; the target's rules take them in place of those that they would choose. Where a target chooses for operators
before they become functions, its pipeline has the pass a second time, with their names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import is_tensor_form, prim_functions
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.locations import describe, names_of
from mirlo.passes.registry import Pass, option, register_pass

TUNED = "tir.tuned"
"""Attribute: numbers by name, which rules take in place of their own choices."""
TUNING = "tuning"
"""Option of a session: the database to look things up in."""

Values = Mapping[str, int]


class Lookup(Protocol):
    """What the pass needs of a database."""

    def find(self, key: str) -> Values | None:
        """What was found best for a prim function."""


@dataclass(frozen=True)
class TuningRecord:
    """A prim function that was tuned, or an operator of some nodes."""

    function: str
    values: dict[str, int]
    nodes: tuple[str, ...] = ()
    """Of an operator: the nodes that it computes, or its place."""


@register_pass
@dataclass(frozen=True)
class ApplyTuning(Pass):
    """Tell prim functions, or operators, what measurements on this machine found best for them (see `mirlo tune`).

    What was found for several threads is for as many; where nothing was, what was found for one thread is taken.
    """

    name = "apply-tuning"
    contained = True
    trusted = True
    target: str = option("llvm", "the target that was measured")
    threads: int = option(1, "threads that it was measured with")
    operators: str = option("", "operators to tell instead of prim functions, with spaces between")

    def run(self, op: Any, session: Any) -> None:
        database: Lookup | None = session.options.get(TUNING)
        if database is None:
            return
        if self.operators:
            self._tell_operators(op, database, session)
            return
        for function in prim_functions(op):
            if not is_tensor_form(function):
                continue
            values = self._find(database, function)
            if values:
                set_tuned(function, values)
                session.notes.append(TuningRecord(name_of(function), dict(values)))

    def _tell_operators(self, module: Any, database: Lookup, session: Any) -> None:
        for op in operations_named(module, self.operators.split()):
            values = self._find(database, op)
            if values:
                set_tuned(op, values)
                nodes = tuple(names_of(op.location)) or (describe(op.location),)
                session.notes.append(TuningRecord(op.name, dict(values), nodes))

    def _find(self, database: Lookup, op: Any) -> Values | None:
        for threads in sorted({1, self.threads}, reverse=True):
            found = database.find(tuning_key(op, self.target, threads))
            if found is not None:
                return found
        return None


def operations_named(module: Any, names: Collection[str]) -> list[Any]:
    """The operations of these kinds in a module."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name in names:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def name_of(function: Any) -> str:
    name: str = ir.StringAttr(function.operation.attributes["sym_name"]).value
    return name


def set_tuned(function: Any, values: Values) -> None:
    i64 = ir.IntegerType.get_signless(64)
    numbers = {name: ir.IntegerAttr.get(i64, value) for name, value in values.items()}
    function.operation.attributes[TUNED] = ir.DictAttr.get(numbers)


def tuned_values(function: Any) -> dict[str, int]:
    """What a prim function, or an operator, was told; empty where nothing is known of it."""
    attributes = function.operation.attributes
    if TUNED not in attributes:
        return {}
    found = ir.DictAttr(attributes[TUNED])
    return {found[i].name: ir.IntegerAttr(found[i].attr).value for i in range(len(found))}


def take_tuned(op: Any) -> dict[str, int]:
    """What an operator was told, which it no longer says then."""
    found = tuned_values(op)
    if found:
        del op.operation.attributes[TUNED]
    return found


def tuning_key(op: Any, target: str, threads: int = 1) -> str:
    """Tells a prim function, or an operator, by what it computes, whatever it is called and where it comes from."""
    from mirlo.passes.targets import find_target

    op = op.operation
    if op.name == "func.func":
        # In its own scope: names and aliases of the whole module would tell kernels apart by what is around them.
        text = op.get_asm(enable_debug_info=False, print_generic_op_form=True, use_local_scope=True)
        text = re.sub(r'sym_name = "[^"]*"', "", text, count=1)
    else:
        text = _operator_text(op)
    text += f" {threads} threads" if threads > 1 else ""
    fingerprint = find_target(target).fingerprint
    machine = fingerprint() if fingerprint is not None else ""
    return hashlib.sha256(f"{target}\n{machine}\n{text}".encode()).hexdigest()[:32]


def _operator_text(op: Any) -> str:
    """An operator without the names of its values: attributes, types, which operands are constants."""
    attributes = sorted(
        f"{named.name} = {named.attr}" for named in map(op.attributes.__getitem__, range(len(op.attributes)))
    )
    operands = [f"{'constant ' * is_constant(value)}{value.type}" for value in op.operands]
    told = [text for text in attributes if not text.startswith(f"{TUNED} ")]
    return f"{op.name} {told} {operands} {[str(result.type) for result in op.results]}"
