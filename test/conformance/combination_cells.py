"""The combinations: operators, rules, places in a model, tools; and why some of them do not work."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Subject:
    """An operator: its node in ONNX, its name in Mirlo and its factor; or several operators as one."""

    node: str
    domain: str
    name: str
    factor: float
    steps: tuple[str, ...] = ()
    """The nodes of several operators, of which `node` is the last."""


OPERATORS = {
    "neg": Subject("Neg", "", "relax.negative", -1.0),
    "plug-in": Subject("Half", "com.combos", "combos.half", 0.5),
    "custom": Subject("Quarter", "com.custom", "", 0.25),
    "composite": Subject("Floor", "", "relax.floor", -1.0, ("Neg", "Floor")),
    "quantized": Subject("QuantizeLinear", "", "relax.quantize", -1.0, ("DequantizeLinear", "Neg", "QuantizeLinear")),
}
RULES = ("default", "target", "compilation", "hand-written", "tensorized", "generator")
PLACES = ("alone", "region", "several", "dynamic", "loop", "helper")
TOOLS = ("compile", "save", "library", "explain", "bisect", "check-target", "script", "tune")


@dataclass(frozen=True)
class Cell:
    """One combination."""

    operator: str
    rule: str
    place: str
    tool: str

    def __str__(self) -> str:
        return f"{self.operator}/{self.rule}/{self.place}/{self.tool}"


def cells() -> Iterator[Cell]:
    """Yield all combinations."""
    for operator in OPERATORS:
        yield from (Cell(operator, *parts) for parts in itertools.product(rules_of(operator), PLACES, TOOLS))


def rules_of(operator: str) -> tuple[str, ...]:
    """Return the rules that an operator can have: for several operators there are code generators only."""
    return ("default", "generator") if OPERATORS[operator].steps else RULES


@dataclass(frozen=True)
class Reason:
    """Why cells do not work: those whose parts are among these, and the error that they give."""

    text: str
    message: str
    operator: tuple[str, ...] = tuple(OPERATORS)
    rule: tuple[str, ...] = RULES
    place: tuple[str, ...] = PLACES
    tool: tuple[str, ...] = TOOLS

    def covers(self, cell: Cell) -> bool:
        """Return whether a cell is one of those."""
        return all(getattr(cell, part) in getattr(self, part) for part in ("operator", "rule", "place", "tool"))


REASONS = (
    Reason(
        "Rules are for operators. A prim function that `mirlo.onnx_operator` attaches is its own code; give the "
        "operator a class (`DialectOp` with `ONNX`) where rules are to choose.",
        "no operator", operator=("custom",), rule=("target", "compilation"),
    ),
    Reason(
        "`check-target` compares operators with their meaning; a node with an attached prim function has no operator.",
        "no operator", operator=("custom",), tool=("check-target",),
    ),
    Reason(
        "`check-target` checks what a target always does; rules and schedules of one compilation are checked by "
        "comparing its results, as `mirlo bisect` does.",
        "one compilation", rule=("compilation", "tensorized"), tool=("check-target",),
    ),
    Reason(
        "The oracle must know what the operator means: an operator class with `meaning` says so, an attached prim "
        "function does not.",
        "it knows the operators of plug-ins that are classes", operator=("custom",), tool=("bisect",),
    ),
    Reason(
        "The oracles compute the nodes of ONNX models, of which a module has none: bisect an export to ONNX.",
        "the module is no ONNX model", place=("helper",), tool=("bisect",),
    ),
)  # fmt: skip
