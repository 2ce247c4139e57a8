"""The pass `apply-tuning`: prim functions are told what measurements found best for them.

A target says what can be chosen for a prim function, as numbers by name; what was measured best is in a database, under
a key that tells the function by its content, the target and the machine. The pass leaves the numbers on the function as
`tir.tuned`; the target's rules take them in place of those that they would choose.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import is_tensor_form, prim_functions
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
    """A prim function that was tuned."""

    function: str
    values: dict[str, int]


@register_pass
@dataclass(frozen=True)
class ApplyTuning(Pass):
    """Tell prim functions what measurements on this machine found best for them (see `mirlo tune`)."""

    name = "apply-tuning"
    trusted = True
    target: str = option("llvm", "the target that was measured")

    def run(self, op: Any, session: Any) -> None:
        database: Lookup | None = session.options.get(TUNING)
        if database is None:
            return
        for function in prim_functions(op):
            if not is_tensor_form(function):
                continue
            values = database.find(kernel_key(function, self.target))
            if values:
                set_tuned(function, values)
                session.notes.append(TuningRecord(name_of(function), dict(values)))


def name_of(function: Any) -> str:
    name: str = ir.StringAttr(function.operation.attributes["sym_name"]).value
    return name


def set_tuned(function: Any, values: Values) -> None:
    i64 = ir.IntegerType.get_signless(64)
    numbers = {name: ir.IntegerAttr.get(i64, value) for name, value in values.items()}
    function.operation.attributes[TUNED] = ir.DictAttr.get(numbers)


def tuned_values(function: Any) -> dict[str, int]:
    """What a prim function was told; empty where nothing is known of it."""
    attributes = function.operation.attributes
    if TUNED not in attributes:
        return {}
    found = ir.DictAttr(attributes[TUNED])
    return {found[i].name: ir.IntegerAttr(found[i].attr).value for i in range(len(found))}


def kernel_key(function: Any, target: str) -> str:
    """Tells a prim function by what it computes, whatever it is called and where it comes from."""
    from mirlo.passes.targets import find_target

    text = function.operation.get_asm(enable_debug_info=False, print_generic_op_form=True)
    text = re.sub(r'sym_name = "[^"]*"', "", text, count=1)
    fingerprint = find_target(target).fingerprint
    machine = fingerprint() if fingerprint is not None else ""
    return hashlib.sha256(f"{target}\n{machine}\n{text}".encode()).hexdigest()[:32]
