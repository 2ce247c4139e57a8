"""Programs: models with host functions on objects (sequences, optional values, strings) between compiled modules.

A program is a list of steps over numbered registers. A step runs a compiled module, calls a host function, or is a
branch or a loop with blocks of its own. Tensors are passed between modules as numpy arrays.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mirlo.runtime.artifact import KernelInfo, TensorSpec
from mirlo.runtime.compiled_program import HOST, IF, PART, CompiledBlock, CompiledProgram, Port, ProgramStep
from mirlo.runtime.errors import InputError, PackedFunctionError
from mirlo.runtime.executable import Executable
from mirlo.runtime.host import is_prepared, makes_new, resolve_host
from mirlo.runtime.inputs import random_input, require_names
from mirlo.runtime.kernel_code import KernelCodeOwner
from mirlo.runtime.kinds import MAP, SEQUENCE, Kind, parse_kind
from mirlo.runtime.memory import MemoryUse
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.profile import Profile, TimedRun, make_profile
from mirlo.runtime.program_file import write_program
from mirlo.runtime.records import dataclass
from mirlo.runtime.values import ProgramValue, converter_of, holds_strings, test_of, type_error


class Program(KernelCodeOwner):
    """A compiled program, which is called like an `Executable`.

    Tensors of strings are passed as arrays or lists of `str`, sequences as lists, optional values as the value or
    None; they are returned as arrays of type `object`, tuples, and None; a sequence of maps is returned as a list of
    dictionaries.
    """

    def __init__(self, compiled: CompiledProgram, store: ParameterStore) -> None:
        self.compiled = compiled
        self._store = store
        self._parts = [Executable(artifact, store) for artifact in compiled.parts]
        steps = list(compiled.body.all_steps())
        host = dict.fromkeys(step.function for step in steps if step.kind == HOST)
        self._functions = resolve_host(list(host), "the model")
        self._body = self._prepare(compiled.body)
        self._names = [port.name for port in self.inputs]
        self._name_set = set(self._names)
        self._inputs = [
            (register, converter_of(port.kind, port.name))
            for port, register in zip(self.inputs, compiled.body.arguments, strict=True)
        ]
        self._accepted: _Arrays = None
        new = self._new_results()
        self._output_names = [port.name for port in self.outputs]
        self._results = [
            (register, _own_result(port.kind) if register in new else partial(_copy_result, port.kind))
            for port, register in zip(self.outputs, compiled.body.results, strict=True)
        ]

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Return the names and kinds of the inputs."""
        return self.compiled.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """Return the names and kinds of the outputs."""
        return self.compiled.outputs

    @property
    def memory(self) -> MemoryUse:
        """Return the bytes of the weights and of the arenas of all modules."""
        used = {spec.name for artifact in self.compiled.parts for spec in artifact.params}
        used |= set(self.compiled.constants.values())
        return MemoryUse(
            sum(self._store.get(name).nbytes for name in used),
            sum(artifact.arena_bytes for artifact in self.compiled.parts),
        )

    def __call__(self, *values: object, **named: object) -> Any:
        """Run the program and return the value of its output, or a tuple of several."""
        results = self._execute(self._bind(values, named))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        """Run the program on values by input name, and return values by output name."""
        return dict(zip(self._output_names, self._execute(self._bind((), inputs)), strict=True))

    def random_inputs(self, seed: int = 0, dims: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
        """Return arrays that fit the inputs, which must be numeric tensors; `dims` are the symbols' sizes."""
        rng = np.random.default_rng(seed)
        inputs = {}
        for port in self.inputs:
            if not port.kind.is_tensor:
                raise InputError(f"input {port}: there are no random values of this kind; give some")
            inputs[port.name] = random_input(
                TensorSpec(port.name, port.kind.name, port.kind.shape or ()), dims or {}, rng
            )
        return inputs

    def profile(self, *values: object, repeats: int = 10, **named: object) -> Profile:
        """Measure the time of each step: the median of several runs, after one warm-up run."""
        if repeats < 1:
            raise InputError(f"repeats: expected 1 or more, found {repeats}")
        bound = self._bind(values, named or ({} if values else self.random_inputs()))
        kernels = self._steps_as_kernels()
        stamps = np.zeros((repeats + 1, len(kernels) + 1), np.uint64)
        for row in stamps:
            self._execute(bound, row)
        return make_profile(kernels, stamps[1:], 1e-9)

    def run_timed(self, inputs: Mapping[str, object]) -> TimedRun:
        """Run the program like `run`, and return the results with the time stamps of its steps."""
        kernels = self._steps_as_kernels()
        stamps = np.zeros(len(kernels) + 1, np.uint64)
        values = self._bind((), inputs)
        start = time.perf_counter()
        results = self._execute(values, stamps)
        end = time.perf_counter()
        named = dict(zip(self._output_names, results, strict=True))
        return TimedRun(named, kernels, stamps, start, end, 1e-9)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program with its weights to a `.mirlo` file, which `mirlo.load` reads without compiling."""
        write_program(path, self.compiled, self._store)

    def release_arenas(self) -> None:
        """Free the arenas that are cached for later calls."""
        for part in self._parts:
            part.release_arenas()

    def __repr__(self) -> str:
        inputs, outputs = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        parts = f"{len(self._parts)} part{'s' if len(self._parts) != 1 else ''}"
        return f"<Program of {parts} for {self.compiled.target}: ({inputs}) -> ({outputs})>"

    def _steps_as_kernels(self) -> tuple[KernelInfo, ...]:
        return tuple(KernelInfo(_label(step), step.source, step.kind, 0, 0) for step in self.compiled.body.steps)

    def _bind(self, positional: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = self._names
        if not positional and type(named) is dict and named.keys() == self._name_set:
            return [named[name] for name in names]
        require_names(named)
        if len(positional) > len(names):
            raise InputError(f"{self._expected()}, found {len(positional)} values")
        by_name = dict(zip(names, positional, strict=False))
        for name, value in named.items():
            if name in by_name:
                raise InputError(f"input '{name}' is given twice, by position and by name")
            if name not in names:
                raise InputError(f"no input is named '{name}': {self._expected()}")
            by_name[name] = value
        if len(by_name) < len(names):
            missing = [str(port) for port in self.inputs if port.name not in by_name]
            raise InputError(f"{self._expected()}, found {len(by_name)}: missing {', '.join(missing)}")
        return [by_name[name] for name in names]

    def _expected(self) -> str:
        count = len(self.inputs)
        return f"the model has {count} input{'s' if count != 1 else ''} ({', '.join(map(str, self.inputs))})"

    def _execute(self, values: Sequence[Any], stamps: np.ndarray | None = None) -> list[object]:
        registers: list[ProgramValue] = [None] * self.compiled.registers
        for register, name in self.compiled.constants.items():
            registers[register] = self._store.get(name)
        for (register, _), value in zip(self._inputs, self._converted(values), strict=True):
            registers[register] = value
        if stamps is None:
            for action in self._body.steps:
                action(registers)
        else:
            self._body.run_timed(registers, stamps)
        return [
            registers[register] if finish is None else finish(registers[register]) for register, finish in self._results
        ]

    def _converted(self, values: Sequence[Any]) -> Sequence[ProgramValue]:
        """Return the values of the inputs as steps take them; arrays like those of the call before need no checks."""
        accepted = self._accepted
        if accepted is not None and (known := _as_described(values, accepted)) is not None:
            return known
        actual = _describe(values)
        dims: dict[str, int] = {}
        result = [convert_(value, dims) for (_, convert_), value in zip(self._inputs, values, strict=True)]
        rows = zip(actual or (), values, result, strict=False)
        is_like = all(argument is value if row[2] else _is_copy(argument, value) for row, argument, value in rows)
        self._accepted = actual if is_like else None
        return result

    def _new_results(self) -> set[int]:
        """Return the registers of results that nothing else refers to: made by one step, and read by none."""
        steps = list(self.compiled.body.all_steps())
        counts = Counter(self.compiled.body.results)
        for step in steps:
            counts.update(step.inputs)
            for block in step.blocks:
                counts.update((*block.arguments, *block.results))
        results = Counter(register for step in steps for register in step.outputs)
        return {
            register
            for step in self.compiled.body.steps
            if step.kind == PART or (step.kind == HOST and makes_new(step.function))
            for register in step.outputs
            if counts[register] == 1 and results[register] == 1
        }

    def _prepare(self, block: CompiledBlock) -> _Block:
        return _Block(block.arguments, list(map(self._action, block.steps)), block.results)

    def _action(self, step: ProgramStep) -> StepAction:
        """Return the function that executes a step: it reads registers, and writes those of its outputs."""
        inputs, outputs = step.inputs, step.outputs
        if step.kind == PART:
            part: Callable[..., np.ndarray | tuple[np.ndarray, ...]] = self._parts[step.part]

            quickly = self._parts[step.part].run_quickly

            def run(registers: list[ProgramValue]) -> None:
                values: list[Any] = [registers[i] for i in inputs]
                results = quickly(values)
                if results is None:
                    computed = part(*values)
                    results = computed if isinstance(computed, tuple) else (computed,)
                for register, result in zip(outputs, results, strict=True):
                    registers[register] = result

            return run
        if step.kind == HOST:
            return _HostCall(step, self._functions[step.function]).action()
        first, second = map(self._prepare, step.blocks)

        def branch(registers: list[ProgramValue]) -> None:
            _assign(outputs, (first if _is_true(registers[inputs[0]]) else second).run(registers), registers)

        def loop(registers: list[ProgramValue]) -> None:
            _assign(outputs, _loop(inputs, first, second, registers), registers)

        return branch if step.kind == IF else loop


StepAction = Callable[[list[ProgramValue]], None]
_Array = tuple[np.dtype, tuple[int, ...], bool]
"""The element type and the shape of an array, and whether steps read its memory as it is, not a copy."""
_Arrays = list[_Array] | None


_READABLE = 0x101
"""NumPy's flags of contiguous, aligned memory."""


def _describe(values: Sequence[object]) -> _Arrays:
    """Return the description of arrays of numbers or strings, or None."""
    result = []
    for value in values:
        if type(value) is not np.ndarray:
            return None
        dtype, is_readable = value.dtype, True
        if dtype.char == "O":
            if not holds_strings(value):
                return None
        elif dtype.hasobject or dtype.char in "SU":
            return None
        else:
            is_readable = value.flags.num & _READABLE == _READABLE
        result.append((dtype, value.shape, is_readable))
    return result


def _as_described(values: Sequence[Any], arrays: Sequence[_Array]) -> list[ProgramValue] | None:
    """Return values that fit a description as steps read them; None for others."""
    result: list[ProgramValue] = []
    for value, (dtype, shape, is_readable) in zip(values, arrays, strict=True):
        if type(value) is not np.ndarray or value.dtype != dtype or value.shape != shape:
            return None
        if dtype.hasobject:
            if not holds_strings(value):
                return None
        elif (value.flags.num & _READABLE == _READABLE) != is_readable:
            return None
        result.append(value if is_readable else value.copy("C"))
    return result


def _is_copy(value: np.ndarray, result: object) -> bool:
    """Return whether the result has the elements of an array of another layout."""
    return isinstance(result, np.ndarray) and (result.dtype, result.shape) == (value.dtype, value.shape)


@dataclass(frozen=True)
class _Block:
    """A block whose steps can run."""

    arguments: tuple[int, ...]
    steps: list[StepAction]
    results: tuple[int, ...]

    def run(self, registers: list[ProgramValue]) -> list[ProgramValue]:
        """Run the steps; return the results."""
        for action in self.steps:
            action(registers)
        return [registers[i] for i in self.results]

    def run_timed(self, registers: list[ProgramValue], stamps: np.ndarray) -> None:
        """Run the steps; write the nanoseconds before each of them, and after the last one."""
        for i, step in enumerate(self.steps):
            stamps[i] = time.perf_counter_ns()
            step(registers)
        stamps[len(self.steps)] = time.perf_counter_ns()


def _is_true(value: ProgramValue) -> bool:
    assert isinstance(value, np.ndarray)
    return bool(value.item())


def _loop(inputs: Sequence[int], before: _Block, after: _Block, registers: list[ProgramValue]) -> list[ProgramValue]:
    values = [registers[i] for i in inputs]
    while True:
        _assign(before.arguments, values, registers)
        going, *values = before.run(registers)
        if not _is_true(going):
            return values
        _assign(after.arguments, values, registers)
        values = after.run(registers)


class _HostCall:
    """A host function with its keyword arguments, whose results are checked."""

    def __init__(self, step: ProgramStep, function: Callable[..., Any]) -> None:
        self.step = step
        options = json.loads(step.options)
        if is_prepared(step.function):
            self.function: Callable[..., Any] = function(**options)
        else:
            self.function = partial(function, **options) if options else function
        kinds = [] if makes_new(step.function) else [parse_kind(text) if text else None for text in step.kinds]
        self.tests = [(i, kind, test_of(kind)) for i, kind in enumerate(kinds) if kind is not None]

    def action(self) -> StepAction:
        """Return the function that executes the step: it reads registers, and writes those of its outputs."""
        function, inputs, outputs, tests = self.function, self.step.inputs, self.step.outputs, self.tests

        def run_unary(registers: list[ProgramValue]) -> None:
            try:
                registers[outputs[0]] = function(registers[inputs[0]])
            except Exception as error:
                raise self._failure(error) from error

        def run_single(registers: list[ProgramValue]) -> None:
            try:
                result = function(*[registers[i] for i in inputs])
            except Exception as error:
                raise self._failure(error) from error
            for _, _, fits in tests:
                if not fits(result):
                    self._require((result,))
            registers[outputs[0]] = result  # which may itself be a tuple: a sequence

        def run(registers: list[ProgramValue]) -> None:
            try:
                results = function(*[registers[i] for i in inputs])
            except Exception as error:
                raise self._failure(error) from error
            if not isinstance(results, tuple) or len(results) != len(outputs):
                raise PackedFunctionError(f"{self}: expected {len(outputs)} results, found {type(results).__name__}")
            self._require(results)
            _assign(outputs, results, registers)

        if len(outputs) != 1:
            return run
        return run_unary if len(inputs) == 1 and not tests else run_single

    def _failure(self, error: Exception) -> PackedFunctionError:
        return PackedFunctionError(f"{self} raised {type(error).__name__}: {error}")

    def _require(self, results: Sequence[ProgramValue]) -> None:
        """Raise an error if a result is not of its kind."""
        for i, kind, fits in self.tests:
            if not fits(results[i]) and (problem := type_error(kind, results[i])) is not None:
                raise PackedFunctionError(f"{self}: result #{i}: {problem}")

    def __str__(self) -> str:
        return f"node '{self.step.source}': host function '{self.step.function}'"


def _assign(places: Sequence[int], values: Sequence[ProgramValue], registers: list[ProgramValue]) -> None:
    for register, value in zip(places, values, strict=True):
        registers[register] = value


def _label(step: ProgramStep) -> str:
    return {PART: f"part_{step.part}", HOST: step.function}.get(step.kind, step.kind)


def _own_result(kind: Kind) -> Callable[[Any], object] | None:
    """Return the function that makes a result for the caller from a value that nothing else refers to, or None.

    None stands for the value itself. A sequence of maps becomes a list.
    """
    return list if kind.name == SEQUENCE and kind.element is not None and kind.element.name == MAP else None


def _copy_result(kind: Kind, value: ProgramValue) -> object:
    """Return a copy of a result for the caller; a sequence of maps becomes a list of dictionaries."""
    if isinstance(value, tuple) and kind.element is not None:
        if kind.element.name == MAP:
            return [item.copy() for item in value if isinstance(item, dict)]
        return tuple(_copy_result(kind.element, item) for item in value)
    if isinstance(value, (np.ndarray, dict)):
        return value.copy() if isinstance(value, dict) else np.array(value)
    return value
