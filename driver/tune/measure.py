"""Times of a kernel with several choices, in one run: each after the other, round by round.

A few short rounds decide which choices are worth the long ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.view import prim_functions
from mirlo.driver.build import build
from mirlo.driver.loaded import CallableModel, require_loaded
from mirlo.driver.request import CompileRequest
from mirlo.driver.tune.tasks import TuningTask
from mirlo.driver.tune.verified import is_verified
from mirlo.passes.schedule.tuned import operations_named, set_tuned
from mirlo.runtime.errors import MirloError
from mirlo.runtime.model_runner import ModelRunner, model_runner
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass
from mirlo.runtime.remote.wire import RemoteError, RunnerLost

if TYPE_CHECKING:
    import numpy.typing as npt

ROUND_SECONDS = 0.017
"""Time of one kernel in one round."""
ROUNDS = 7
HEAT_SECONDS = 0.004
"""Time of one kernel in one of the rounds that decide what is measured longer."""
HEATS = 3
MAX_HEAT_RATIO = 0.99
"""Choices that take a larger part of the time in those rounds are not measured longer: they would not be kept."""
FINALISTS = 3
"""Most choices of a batch that are measured longer."""


class Measurer(Protocol):
    """The interface that times kernels: here, on a board, or on other machines."""

    def ratios(self, task: TuningTask, choices: Sequence[dict[str, int]], target: str, threads: int) -> ChoiceTiming:
        """Time the kernel with its target's own choices; return the ratios of the given ones to that.

        A measurer with a property `workers` above 1 is called by this many threads at a time.
        """


@dataclass(frozen=True)
class ChoiceTiming:
    """Microseconds without choices, and for each choice the ratio to that; None where it cannot be compiled."""

    microseconds: float
    ratios: tuple[float | None, ...]


@dataclass(frozen=True)
class Local:
    """Times kernels in this process, or on the board where compiled models run."""

    def ratios(self, task: TuningTask, choices: Sequence[dict[str, int]], target: str, threads: int) -> ChoiceTiming:
        return time_choices(task, choices, target, threads)


@dataclass(frozen=True)
class OwnKernel:
    """A kernel with its target's own choices, and its results."""

    executable: CallableModel
    inputs: dict[str, np.ndarray]
    wanted: dict[str, np.ndarray]


def time_choices(task: TuningTask, choices: Sequence[dict[str, int]], target: str, threads: int) -> ChoiceTiming:
    """Compile the kernel once for each choice and time them in turns."""
    own = _own_kernel(task.module, task.rest, task.operator, target, threads, model_runner())
    others = [_compiled(task, choice, target, threads) for choice in choices]
    usable = [other if other is not None and _agrees(other, own) else None for other in others]
    heats = _rounds(own, usable, HEATS, HEAT_SECONDS)
    ratios = heats.ratios
    fastest = sorted((i for i, ratio in enumerate(ratios) if ratio is not None), key=lambda i: ratios[i] or 0.0)
    promising = [i for i in fastest[:FINALISTS] if (ratios[i] or 0.0) <= MAX_HEAT_RATIO]
    wrong = {i for i in promising if not _is_right(task, choices[i])}
    finalists = set(promising) - wrong
    ratios = tuple(None if i in wrong else ratio for i, ratio in enumerate(ratios))
    if choices and not finalists:
        return replace(heats, ratios=ratios)
    left = [other if i in finalists else None for i, other in enumerate(usable)]
    final = _rounds(own, left, ROUNDS, ROUND_SECONDS)
    joined = (first if last is None else last for first, last in zip(ratios, final.ratios, strict=True))
    return ChoiceTiming(final.microseconds, tuple(joined))


@lru_cache(maxsize=1)
def _own_kernel(
    module: str, rest: str, operator: str | None, target: str, threads: int, runner: ModelRunner | None
) -> OwnKernel:
    """Compile a kernel with its target's own choices; the batches of a search share it, where one machine runs it."""
    executable = compile_task(TuningTask("", "", 1, module, rest, (), operator=operator), {}, target, threads)
    inputs = executable.random_inputs(0)
    return OwnKernel(executable, inputs, executable.run(inputs))


def _rounds(own: OwnKernel, others: Sequence[CallableModel | None], rounds: int, seconds: float) -> ChoiceTiming:
    """Time a kernel and others in turns."""
    first = _time(own.executable, own.inputs, 2)
    count = max(2, min(200, int(seconds * 1e6 / max(first, 1.0))))
    times: list[list[float]] = [[] for _ in range(len(others) + 1)]
    for _ in range(rounds):
        for executable, measured in zip([own.executable, *others], times, strict=True):
            if executable is not None:
                measured.append(_time(executable, own.inputs, count))
    ratios = (
        statistics.median([time / base for time, base in zip(measured, times[0], strict=True)]) if measured else None
        for measured in times[1:]
    )
    return ChoiceTiming(statistics.median(times[0]), tuple(ratios))


def _compiled(task: TuningTask, choice: dict[str, int], target: str, threads: int) -> CallableModel | None:
    try:
        return compile_task(task, choice, target, threads)
    except RunnerLost:
        raise
    except MirloError:
        return None


def _agrees(executable: CallableModel, own: OwnKernel) -> bool:
    """Return whether a choice computes the same as the target's own; a faster but wrong one is rejected."""
    try:
        outputs = executable.run(own.inputs)
    except RunnerLost:
        raise
    except RemoteError:
        return False  # its process on the board has ended
    return all(
        np.allclose(outputs[name].astype(np.float64), array.astype(np.float64), rtol=1e-3, atol=1e-3, equal_nan=True)
        for name, array in own.wanted.items()
    )


def compile_task(task: TuningTask, values: dict[str, int], target: str, threads: int) -> CallableModel:
    """Compile the kernel with these choices."""
    with make_context(), ir.Location.unknown():
        module, store = _module_of(task, values)
    result = build(
        CompileRequest(
            module, target, threads=threads, pipeline=task.rest, params=store, jobs=1, cache=False, tune=False
        )
    )
    return require_loaded(result, "kernels are measured")


def _module_of(task: TuningTask, values: dict[str, int]) -> tuple[ir.Module, ParameterStore]:
    """Return the module of a kernel with these choices, and its weights."""
    module = ir.Module.parse(task.module)
    if values and task.operator is not None:
        set_tuned(operations_named(module, [task.operator])[0], values)
    elif values:
        set_tuned(prim_functions(module.operation)[0], values)
    return module, _weights(module)


def _is_right(task: TuningTask, values: dict[str, int]) -> bool:
    """Return whether the kernel with these choices is equal to its definition."""
    with make_context(), ir.Location.unknown():
        module, store = _module_of(task, values)
        return is_verified(module, task.rest, store)


def _weights(module: ir.Module) -> ParameterStore:
    """Return arrays for the constants of the module, with any content."""
    store, rng = ParameterStore(), np.random.default_rng(0)

    def visit(op: ir.Operation | ir.OpView) -> ir.WalkResult:
        if op.name == "relax.constant" and "param" in op.attributes:
            name = ir.StringAttr(op.attributes["param"]).value
            tensor_type = TensorType.from_mlir(op.results[0].type)
            assert tensor_type is not None
            if name not in store:
                store.add(name, _random_values(rng, tensor_type.static_shape, tensor_type.dtype.to_numpy()))
        return ir.WalkResult.ADVANCE

    walk(module, visit)
    return store


def _random_values(rng: np.random.Generator, shape: Sequence[int], dtype: npt.DTypeLike) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind in "iub":
        return rng.integers(0, 2, shape).astype(kind)
    return rng.standard_normal(shape, dtype=np.float32).astype(kind)


def _time(executable: CallableModel, inputs: Mapping[str, np.ndarray], repeats: int) -> float:
    """Return the microseconds of one call, measured inside of the compiled code."""
    return float(executable.profile(*inputs.values(), repeats=repeats).microseconds)
