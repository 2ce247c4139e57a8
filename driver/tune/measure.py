"""Times of a kernel with several choices, in one run: each after the other, round by round."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.driver.build import build
from mirlo.driver.loaded import require_loaded
from mirlo.driver.request import CompileRequest
from mirlo.driver.tune.tasks import TuningTask
from mirlo.runtime.errors import MirloError

if TYPE_CHECKING:
    import numpy.typing as npt

    from mirlo.runtime.executable import Executable
    from mirlo.runtime.params import ParameterStore
    from mirlo.runtime.program import Program

SECONDS = 0.12
"""Time that one measurement of one kernel takes, for all rounds together."""
ROUNDS = 7


class Measurer(Protocol):
    """Where kernels are timed: here, or on other machines."""

    def ratios(self, task: TuningTask, choices: Sequence[dict[str, int]], target: str, threads: int) -> ChoiceTiming:
        """Time the kernel with its target's own choices; return the ratios of the given ones to that.

        A measurer with a property `workers` above 1 is called by so many threads at a time.
        """


@dataclass(frozen=True)
class ChoiceTiming:
    """Microseconds without choices, and for each choice the ratio to that; None where it cannot be compiled."""

    microseconds: float
    ratios: tuple[float | None, ...]


@dataclass(frozen=True)
class Local:
    """Times kernels in this process."""

    def ratios(self, task: TuningTask, choices: Sequence[dict[str, int]], target: str, threads: int) -> ChoiceTiming:
        return time_choices(task, choices, target, threads)


def time_choices(task: TuningTask, choices: Sequence[dict[str, int]], target: str, threads: int) -> ChoiceTiming:
    """Compile the kernel once for each choice and time them in turns."""
    own = compile_task(task, {}, target, threads)
    others = [_compiled(task, choice, target, threads) for choice in choices]
    inputs = own.random_inputs(0)
    wanted = own.run(inputs)
    count = _repeats(own, inputs)
    times: list[list[float]] = [[] for _ in range(len(others) + 1)]
    usable = [other if other is not None and _agrees(other, inputs, wanted) else None for other in others]
    for _ in range(ROUNDS):
        for executable, measured in zip([own, *usable], times, strict=True):
            if executable is not None:
                measured.append(_time(executable, inputs, count))
    base = statistics.median(times[0])
    ratios = tuple(
        None
        if not measured
        else statistics.median([time / first for time, first in zip(measured, times[0], strict=True)])
        for measured in times[1:]
    )
    return ChoiceTiming(base, ratios)


def _compiled(task: TuningTask, choice: dict[str, int], target: str, threads: int) -> Executable | Program | None:
    try:
        return compile_task(task, choice, target, threads)
    except MirloError:
        return None


def _agrees(executable: Executable | Program, inputs: Mapping[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    """Return whether a choice computes the same as the target's own; a faster but wrong one is rejected."""
    outputs = executable.run(inputs)
    return all(
        np.allclose(outputs[name].astype(np.float64), array.astype(np.float64), rtol=1e-3, atol=1e-3, equal_nan=True)
        for name, array in wanted.items()
    )


def compile_task(task: TuningTask, values: dict[str, int], target: str, threads: int) -> Executable | Program:
    """Compile the kernel with these choices."""
    from mirlo.dialects.bindings import ir
    from mirlo.dialects.context import make_context
    from mirlo.dialects.tir.view import prim_functions
    from mirlo.passes.schedule.tuned import operations_named, set_tuned

    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(task.module)
        if values and task.operator is not None:
            set_tuned(operations_named(module, [task.operator])[0], values)
        elif values:
            set_tuned(prim_functions(module.operation)[0], values)
        store = _weights(module)
    result = build(
        CompileRequest(
            module, target, threads=threads, pipeline=task.rest, params=store, jobs=1, cache=False, tune=False
        )
    )
    return require_loaded(result, "kernels are measured")


def _weights(module: ir.Module) -> ParameterStore:
    """Return arrays for the constants of the module, with any content."""
    from mirlo.dialects.bindings import ir
    from mirlo.dialects.core.types import TensorType
    from mirlo.runtime.params import ParameterStore

    store, rng = ParameterStore(), np.random.default_rng(0)

    def visit(op: ir.Operation | ir.OpView) -> ir.WalkResult:
        if op.name == "relax.constant" and "param" in op.attributes:
            name = ir.StringAttr(op.attributes["param"]).value
            tensor_type = TensorType.from_mlir(op.results[0].type)
            assert tensor_type is not None
            if name not in store:
                store.add(name, _random_values(rng, tensor_type.static_shape, tensor_type.dtype.to_numpy()))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return store


def _random_values(rng: np.random.Generator, shape: Sequence[int], dtype: npt.DTypeLike) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind in "iub":
        return rng.integers(0, 2, shape).astype(kind)
    return rng.standard_normal(shape, dtype=np.float32).astype(kind)


def _repeats(executable: Executable | Program, inputs: Mapping[str, np.ndarray]) -> int:
    first = _time(executable, inputs, 3)
    return max(2, min(200, int(SECONDS / ROUNDS * 1e6 / max(first, 1.0))))


def _time(executable: Executable | Program, inputs: Mapping[str, np.ndarray], repeats: int) -> float:
    """Return the microseconds of one call, measured inside of the compiled code."""
    return float(executable.profile(*inputs.values(), repeats=repeats).microseconds)
