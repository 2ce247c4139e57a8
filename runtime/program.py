"""Programs: models with host functions on objects (sequences, optional values, strings) between compiled modules.

A program is a list of steps over numbered registers. A step runs a compiled module, calls a host function, or is a
branch or a loop with blocks of its own. Tensors are passed between modules as numpy arrays.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mirlo.runtime.artifact import KernelInfo, TensorSpec
from mirlo.runtime.compiled_program import HOST, IF, PART, CompiledBlock, CompiledProgram, Port, ProgramStep
from mirlo.runtime.errors import InputError, PackedFunctionError
from mirlo.runtime.executable import Executable, MemoryUse
from mirlo.runtime.host import resolve_host
from mirlo.runtime.inputs import random_input, require_names
from mirlo.runtime.kinds import MAP, Kind, parse_kind
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.profile import Profile, make_profile
from mirlo.runtime.program_file import write_program
from mirlo.runtime.values import type_error, value_of


class Program:
    """A compiled program, which is called like an `Executable`.

    Tensors of strings are passed as arrays or lists of `str`, sequences as lists, optional values as the value or
    None; they are returned as arrays of type `object`, tuples, and None; a sequence of maps is returned as a list of
    dictionaries.
    """

    def __init__(self, compiled: CompiledProgram, store: ParameterStore) -> None:
        self.compiled = compiled
        self._store = store
        self._parts = [Executable(artifact, store) for artifact in compiled.parts]
        host = [step for step in compiled.body.all_steps() if step.kind == HOST]
        self._functions = resolve_host(list(dict.fromkeys(step.function for step in host)), "the model")
        self._calls = {id(step): _HostCall(step, self._functions[step.function]) for step in host}

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

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Run the program and return the value of its output, or a tuple of several."""
        results = self._execute(self._bind(values, named))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the program on values by input name, and return values by output name."""
        results = self._execute(self._bind((), inputs))
        return {port.name: result for port, result in zip(self.outputs, results, strict=True)}

    def random_inputs(self, seed: int = 0, dims: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return arrays that fit the inputs, which must be numeric tensors; `dims` are the symbols' sizes."""
        rng = np.random.default_rng(seed)
        made = {}
        for port in self.inputs:
            if not port.kind.is_tensor:
                raise InputError(f"input {port}: there are no random values of this kind; give some")
            made[port.name] = random_input(
                TensorSpec(port.name, port.kind.name, port.kind.shape or ()), dims or {}, rng
            )
        return made

    def profile(self, *values: Any, repeats: int = 10, **named: Any) -> Profile:
        """Measure the time of each step: the median of several runs, after one warm-up run."""
        if repeats < 1:
            raise InputError(f"repeats: expected 1 or more, found {repeats}")
        bound = self._bind(values, named or ({} if values else self.random_inputs()))
        steps = self.compiled.body.steps
        stamps = np.zeros((repeats + 1, len(steps) + 1), np.uint64)
        for row in stamps:
            self._execute(bound, row)
        kernels = tuple(KernelInfo(_label(step), step.source, step.kind, 0, 0) for step in steps)
        return make_profile(kernels, stamps[1:], 1e-9)

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

    def _bind(self, positional: Sequence[np.ndarray], named: Mapping[str, Any]) -> list[np.ndarray]:
        require_names(named)
        names = [port.name for port in self.inputs]
        if len(positional) > len(names):
            raise InputError(f"{self._expected()}, found {len(positional)} values")
        given = dict(zip(names, positional, strict=False))
        for name, value in named.items():
            if name in given:
                raise InputError(f"input '{name}' is given twice, by position and by name")
            if name not in names:
                raise InputError(f"no input is named '{name}': {self._expected()}")
            given[name] = value
        if len(given) < len(names):
            missing = [str(port) for port in self.inputs if port.name not in given]
            raise InputError(f"{self._expected()}, found {len(given)}: missing {', '.join(missing)}")
        return [given[name] for name in names]

    def _expected(self) -> str:
        count = len(self.inputs)
        return f"the model has {count} input{'s' if count != 1 else ''} ({', '.join(map(str, self.inputs))})"

    def _execute(self, values: Sequence[np.ndarray], stamps: np.ndarray | None = None) -> list[np.ndarray]:
        dims: dict[str, int] = {}
        registers: list[np.ndarray | None] = [None] * self.compiled.registers
        for register, name in self.compiled.constants.items():
            registers[register] = self._store.get(name)
        ports = zip(self.inputs, values, self.compiled.body.arguments, strict=True)
        for port, value, register in ports:
            registers[register] = value_of(port.kind, value, port.name, dims)
        results = self._run(self.compiled.body, registers, stamps)
        # Results belong to the caller alone, so a result that is an input, a weight, or a view of another result is
        # copied.
        return [_copy_result(port.kind, value) for port, value in zip(self.outputs, results, strict=True)]

    def _run(self, block: CompiledBlock, registers: list[Any], stamps: np.ndarray | None = None) -> list[np.ndarray]:
        for i, step in enumerate(block.steps):
            if stamps is not None:
                stamps[i] = time.perf_counter_ns()
            results = self._step(step, registers)
            for register, value in zip(step.outputs, results, strict=True):
                registers[register] = value
        if stamps is not None:
            stamps[len(block.steps)] = time.perf_counter_ns()
        return [registers[i] for i in block.results]

    def _step(self, step: ProgramStep, registers: list[Any]) -> Sequence[np.ndarray]:
        if step.kind == PART:
            made = self._parts[step.part](*(registers[i] for i in step.inputs))
            return made if isinstance(made, tuple) else (made,)
        if step.kind == HOST:
            return self._calls[id(step)](*(registers[i] for i in step.inputs))
        if step.kind == IF:
            return self._run(step.blocks[0 if registers[step.inputs[0]].item() else 1], registers)
        return self._loop(step, registers)

    def _loop(self, step: ProgramStep, registers: list[Any]) -> list[Any]:
        before, after = step.blocks
        values = [registers[i] for i in step.inputs]
        while True:
            _assign(before.arguments, values, registers)
            going, *values = self._run(before, registers)
            if not going.item():
                return values
            _assign(after.arguments, values, registers)
            values = self._run(after, registers)


class _HostCall:
    """A host function with its keyword arguments, whose results are checked."""

    def __init__(self, step: ProgramStep, function: Any) -> None:
        self.step = step
        self.function = function
        self.options = json.loads(step.options)
        self.kinds = [parse_kind(text) if text else None for text in step.kinds]

    def __call__(self, *values: Any) -> Sequence[np.ndarray]:
        name = f"node '{self.step.source}': host function '{self.step.function}'"
        try:
            made = self.function(*values, **self.options)
        except Exception as error:
            raise PackedFunctionError(f"{name} raised {type(error).__name__}: {error}") from error
        # One result may itself be a tuple: a sequence.
        results = (made,) if len(self.kinds) == 1 else made
        if not isinstance(results, tuple) or len(results) != len(self.kinds):
            raise PackedFunctionError(f"{name}: expected {len(self.kinds)} results, found {type(results).__name__}")
        for i, (kind, value) in enumerate(zip(self.kinds, results, strict=True)):
            problem = None if kind is None else type_error(kind, value)
            if problem is not None:
                raise PackedFunctionError(f"{name}: result #{i}: {problem}")
        return results


def _assign(places: Sequence[int], values: Sequence[Any], registers: list[Any]) -> None:
    for register, value in zip(places, values, strict=True):
        registers[register] = value


def _label(step: ProgramStep) -> str:
    return {PART: f"part_{step.part}", HOST: step.function}.get(step.kind, step.kind)


def _copy_result(kind: Kind, value: np.ndarray) -> np.ndarray:
    """Return a copy of a result for the caller; a sequence of maps becomes a list of dictionaries."""
    if isinstance(value, tuple) and kind.element is not None:
        if kind.element.name == MAP:
            return list(map(dict.copy, value))
        return tuple(_copy_result(kind.element, item) for item in value)
    if isinstance(value, (np.ndarray, dict)):
        return value.copy() if isinstance(value, dict) else np.array(value)
    return value
