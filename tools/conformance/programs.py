"""Programs that compute cases on a target: many in one module, and one by one where that does not compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import EXTRA_DIALECTS, make_context
from mirlo.dialects.core.attributes import dense_attribute
from mirlo.dialects.core.dtypes import dtype_of_numpy
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.calls import CallTir
from mirlo.dialects.relax.create import Constant
from mirlo.dialects.tir.compute import PrimBuilder, call
from mirlo.driver.build import build, load_compiled
from mirlo.driver.compiler import Compiler
from mirlo.driver.request import CompileRequest
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.legalize.conversion import LegalizationRecord
from mirlo.passes.lower.intrinsics import IntrinsicChoice
from mirlo.passes.rules import Attempt, Rule
from mirlo.passes.schedule.schedule import ScheduleRecord
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.errors import MirloError
from mirlo.runtime.executable import Executable
from mirlo.runtime.records import dataclass
from mirlo.runtime.remote.wire import RunnerLost
from mirlo.runtime.unloaded import UnloadedModel
from mirlo.tools.conformance.case import OperatorCase

if TYPE_CHECKING:
    from mirlo.dialects.core.op import DialectOp

BATCH = 40
"""Programs in one module."""

Emit = Callable[[list[ir.Value]], list[ir.Value]]


@dataclass(frozen=True)
class TestProgram:
    """A program to compute: its name, its arrays, and the function that makes it from their values."""

    name: str
    arrays: Sequence[np.ndarray]
    emit: Emit
    types: Sequence[TensorType] = ()
    """The types of the arrays, where dims of them are dynamic."""

    @property
    def argument_types(self) -> list[TensorType]:
        return list(self.types) or [tensor_type(array) for array in self.arrays]


@dataclass(frozen=True)
class ProgramOutcome:
    """The results, or the error in their place."""

    results: tuple[np.ndarray, ...] = ()
    error: str | None = None
    rules: frozenset[Rule] = frozenset()
    """The rules that were taken by this program, or by one that was compiled with it."""
    own_rules: frozenset[Rule] = frozenset()
    """The legalization and schedule rules that were taken by programs of this name."""
    declines: tuple[Attempt, ...] = ()
    """The rules that declined, likewise."""
    patterns: frozenset[str] = frozenset()
    """The patterns of code generators that took something of this program, `target.pattern`."""
    tolerance: float = 0.0
    """The error that these code generators declare."""


def operator_class(name: str) -> type[DialectOp]:
    """Return the class of an operator: of relax, or by its full name one of a plug-in."""
    if name in OPS:
        return OPS[name]
    classes = {full: cls for dialect in EXTRA_DIALECTS for full, cls in dialect.operations.items()}
    return classes[name]


def operator_program(operator: str, case: OperatorCase, constants: bool = False) -> TestProgram:
    """Return a program of one operator; with `constants`, all operands but the first are known when it is compiled."""
    arrays = case.arrays[:1] if constants else case.arrays

    def emit(values: list[ir.Value]) -> list[ir.Value]:
        known = [constant(array) for array in case.arrays[len(arrays) :]]
        rest = iter([*values, *known])
        arguments = [
            [next(rest) for _ in o] if isinstance(o, list) else None if o is None else next(rest) for o in case.operands
        ]
        result = operator_class(operator).make(*arguments, **case.attributes)
        return list(result) if isinstance(result, tuple) else [result]

    return TestProgram(operator, arrays, emit)


def constant(array: np.ndarray) -> ir.Value:
    """Emit a constant."""
    kind = tensor_type(array)
    result: ir.Value = Constant.make(value=dense_attribute(array, kind), result_types=[kind])
    return result


def intrinsic_program(name: str, arrays: Sequence[np.ndarray]) -> TestProgram:
    """Return a prim function that applies an intrinsic to each element."""
    symbol = "kernel_" + "_".join([name.replace(".", "_"), *(str(array.dtype) for array in arrays)])

    def emit(values: list[ir.Value]) -> list[ir.Value]:
        types = [tensor_type(array) for array in arrays]
        prim = PrimBuilder(symbol, types, ir.Location.unknown())
        output = prim.compute(types[0].static_shape, lambda i: call(name, *(x[i] for x in prim.inputs)), name=name)
        module = ir.InsertionPoint.current.block.owner.operation.parent
        assert module is not None
        module.regions[0].blocks[0].append(prim.finish(output).operation)
        return [CallTir.make(values, result_types=[output.type], callee=symbol)]

    return TestProgram(name if "." in name else f"tir.{name}", arrays, emit)


def tensor_type(array: np.ndarray) -> TensorType:
    """Return the type of a tensor that holds the array."""
    dtype = dtype_of_numpy(array.dtype)
    assert dtype is not None, array.dtype
    return TensorType(array.shape, dtype)


def run(
    programs: Sequence[TestProgram], target: str, progress: Callable[[int], None], verify: bool = False
) -> list[ProgramOutcome]:
    """Run each program; `progress` is called with the number of finished ones.

    With `verify`, the kernels are compared with their definitions, and a program with one that differs fails.
    """
    outcomes: list[ProgramOutcome] = []
    for first in range(0, len(programs), BATCH):
        batch = programs[first : first + BATCH]
        try:
            outcomes += _run_batch(batch, target, verify)
        except RunnerLost:
            raise  # no board is left that could compute the others
        except (MirloError, ir.MLIRError):
            # One of them is not computed: which one, and why.
            outcomes += [_run_single(program, target, verify) for program in batch]
        progress(len(outcomes))
    return outcomes


def _run_single(program: TestProgram, target: str, verify: bool) -> ProgramOutcome:
    try:
        return _run_batch([program], target, verify)[0]
    except RunnerLost:
        raise
    except (MirloError, ir.MLIRError) as error:
        return ProgramOutcome(error=str(error))


def _run_batch(programs: Sequence[TestProgram], target: str, verify: bool) -> list[ProgramOutcome]:
    compiled = compile_programs(programs, target, verify=verify)
    records = [
        note for note in compiled.notes if isinstance(note, (LegalizationRecord, IntrinsicChoice, ScheduleRecord))
    ]
    rules = frozenset(note.rule for note in records if note.rule is not None)
    declines = tuple(attempt for note in records for attempt in note.attempts)
    own: dict[str, set[Rule]] = {}
    for note in records:
        if not isinstance(note, IntrinsicChoice) and note.rule is not None:
            for name in note.names:
                own.setdefault(name, set()).add(note.rule)
    results = compiled.call([program.arrays for program in programs])
    patterns = [compiled.patterns_of(program) for program in programs]
    targets = Targets.parse(target)
    return [
        ProgramOutcome(
            outputs, None, rules, frozenset(own.get(program.name, ())), declines, taken,
            targets.error_of(pattern.partition(".")[0] for pattern in taken),
        )
        for program, outputs, taken in zip(programs, results, patterns, strict=True)
    ]  # fmt: skip


@dataclass(frozen=True)
class CompiledPrograms:
    """Programs that were compiled in one module."""

    executable: Executable | UnloadedModel
    """A model on a board is called there; one for another machine says so."""
    counts: Sequence[int]
    """The number of results of each."""
    notes: Sequence[object]
    """The records of passes."""

    def call(self, arrays: Sequence[Sequence[np.ndarray]]) -> list[tuple[np.ndarray, ...]]:
        """Compute all programs on their arrays.

        An element that no code writes keeps what is in memory, which may be the right result of an earlier call: a
        second call writes over the complements of the first results.
        """
        values = [array for of_program in arrays for array in of_program]
        results = _as_sequence(self.executable(*values))
        if isinstance(self.executable, Executable):
            results = _as_sequence(self.executable(*values, out=[_complement(array) for array in results]))
        outputs = iter(results)
        return [tuple(np.copy(next(outputs)) for _ in range(count)) for count in self.counts]

    def patterns_of(self, program: TestProgram) -> frozenset[str]:
        """Return the patterns that took a part of a program, by its name."""
        return taken_patterns(self.notes).get(program.name, frozenset())


def _as_sequence(results: np.ndarray | Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    return [results] if isinstance(results, np.ndarray) else results


def _complement(array: np.ndarray) -> np.ndarray:
    """Return an array of which each element differs from that of another one."""
    if array.dtype == np.bool_:
        return np.array(np.logical_not(array))
    result = np.array(array, order="C")
    flat = result.reshape(-1).view(np.uint8)
    np.invert(flat, out=flat)
    return result


def taken_patterns(notes: Sequence[object]) -> dict[str, frozenset[str]]:
    """Return the patterns that took a part, by the name of the program."""
    taken: dict[str, set[str]] = {}
    for placement in notes:
        if isinstance(placement, Placement):
            for composite in placement.taken:
                for node in composite.nodes:
                    for name in placement.nodes[node].names:
                        taken.setdefault(name, set()).add(f"{composite.target}.{composite.pattern}")
    return {name: frozenset(patterns) for name, patterns in taken.items()}


def compile_programs(
    programs: Sequence[TestProgram], target: str, threads: int = 1, verify: bool = False
) -> CompiledPrograms:
    """Compile programs in one module."""
    with make_context(), ir.Location.unknown():
        module, counts = module_of(programs)
        request = CompileRequest(module, target, threads=threads, verify=verify)
        compiled, session = Compiler(request, build).run()
        assert isinstance(compiled, Artifact)
        executable = load_compiled(compiled, session.params)
        return CompiledPrograms(executable, counts, tuple(session.notes))


def module_of(programs: Sequence[TestProgram]) -> tuple[ir.Module, list[int]]:
    """Return a module whose function computes all programs in order, and the number of results of each."""
    module = ir.Module.create()
    types = [kind.to_mlir() for program in programs for kind in program.argument_types]
    with ir.InsertionPoint(module.body):
        main = func.FuncOp(ENTRY_NAME, ir.FunctionType.get(types, []))
        mark_entry(main)
    entry = main.add_entry_block()
    arguments = iter(list(entry.arguments))
    results: list[list[ir.Value]] = []
    for program in programs:
        with ir.InsertionPoint(entry), ir.Location.name(program.name):
            results.append(program.emit([next(arguments) for _ in program.arrays]))
    flat = [value for of_program in results for value in of_program]
    with ir.InsertionPoint(entry):
        func.ReturnOp(flat)
    main.operation.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get(types, [value.type for value in flat])
    )
    return module, [len(of_program) for of_program in results]
