"""Strategies by measured cost: each rule of an operator compiled for it alone, and timed on this machine.

mirlo.compile(model, strategies="measure")
mirlo.compile(model, strategies=Measured(cache="strategies.json"))     # and remembered
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.surgery import clone_with
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry
from mirlo.driver.loaded import CallableModel
from mirlo.passes.files import FileError
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.legalize.conversion import LegalizationRecord
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rules import Rule
from mirlo.passes.session import Session
from mirlo.runtime.files import read_regular, write_regular
from mirlo.runtime.records import dataclass

ROUNDS = 5

CompileOperator = Callable[[ir.Module, Mapping[str, str]], CallableModel]
"""Compiles a module for the target at hand, with strategies."""


@dataclass(frozen=True)
class StrategyRecord:
    """The measurements of an operator: microseconds by rule; rules that decline or fail have none."""

    operator: str
    microseconds: dict[str, float]

    @property
    def fastest(self) -> str | None:
        return min(self.microseconds, key=lambda name: self.microseconds[name], default=None)

    def __str__(self) -> str:
        times = ", ".join(f"{name} {time:.1f} us" for name, time in self.microseconds.items())
        return f"strategies of {self.operator}: {times}"


@dataclass
class Measured:
    """Chooses the rule whose code is fastest. What was measured once is not measured again.

    `cache` is a file that remembers it beyond this process; it belongs to one machine.
    """

    cache: str | Path | None = None
    known: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.cache is None or not Path(self.cache).exists():
            return
        try:
            self.known = json.loads(read_regular(self.cache))
        except (OSError, ValueError, RecursionError) as error:
            raise FileError(f"cannot read measured strategies from '{self.cache}': {error}") from error

    def chooser(
        self, target: str, settings: str, session: Session, compile: CompileOperator
    ) -> Callable[..., str | None]:
        """Return the function that legalization calls to choose; `settings` distinguish different code."""

        def choose(op: ir.Operation | ir.OpView, rules: Sequence[Rule]) -> str | None:
            names = list(dict.fromkeys(rule.name for rule in rules))
            if len(names) < 2:
                return None
            module = _operator_module(op.operation)
            # What is the same here is compiled to the same code: the text has the types and the attributes.
            key = re.sub(r'param = "[^"]*"', "param", f"{target} {settings} {module}")
            if key not in self.known:
                self.known[key] = {
                    name: time for name in names if (time := _time(module, op.operation.name, name, target, compile))
                }
                self._save()
            record = StrategyRecord(op.operation.name, self.known[key])
            session.notes.append(record)
            return record.fastest

        return choose

    def _save(self) -> None:
        if self.cache is None:
            return
        try:
            write_regular(self.cache, json.dumps(self.known, indent=1))
        except OSError as error:
            raise FileError(f"cannot write measured strategies to '{self.cache}': {error}") from error


def _operator_module(op: ir.Operation | ir.OpView) -> ir.Module:
    """Return a module that computes this operator from its operands."""
    with op.context, ir.Location.unknown():
        module = ir.Module.create()
        kinds = [value.type for value in op.operands if not is_constant(value)]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp(ENTRY_NAME, ir.FunctionType.get(kinds, [value.type for value in op.results]))
            mark_entry(main)
        entry = main.add_entry_block()
        arguments = iter(list(entry.arguments))
        with ir.InsertionPoint(entry):
            # Weights stay weights: what is made of them ahead of time costs nothing.
            operands = [clone_with(v.owner, []).results[0] if is_constant(v) else next(arguments) for v in op.operands]
            func.ReturnOp(list(clone_with(op, operands).results))
    return module


def _time(module: ir.Module, operator: str, name: str, target: str, compile: CompileOperator) -> float | None:
    """Return the microseconds of the operator by the rule of this name; None if the rule declines it."""
    wanted = {operator: name}
    session = Session(options={"strategies": wanted})
    with module.context:
        copy = ir.Module.parse(str(module))
    try:
        Pipeline(f"legalize{{target={target}}}").run(copy, session)
        won = next(note for note in session.notes if isinstance(note, LegalizationRecord))
        if won.rule is None or won.rule.name != name:
            return None
        executable = compile(module, wanted)
    except PassFailed:
        return None
    return min(executable.profile(repeats=10).microseconds for _ in range(ROUNDS))
