"""Regions at run time: their steps on the simulated core, one after the other."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from mirlo.extend.runtime import DeviceStep, ExternalArtifact, ExternalFunctions, LoadContext
from mirlo_tensix.simulator import Cycles, SimulatorError, Trace, Work, execute
from mirlo_tensix.steps import Array, Run, Step, steps_of
from mirlo_tensix.unit import Bits


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Return functions that run the regions of an artifact; weights are tiled once."""
    content = json.loads(artifact.data)
    regions: dict[str, Any] = content["regions"]
    steps = {
        name: [(step, step.constants(context.params)) for step in steps_of(region)] for name, region in regions.items()
    }
    last: dict[str, list[DeviceStep]] = {}

    def function(name: str) -> Callable[..., None]:
        inputs, outputs = regions[name]["ends"]

        def call(*tensors: Array) -> None:
            values = dict(zip(inputs, tensors, strict=False))
            last[name] = []
            for step, tiles in steps[name]:
                cycles = list[Cycles]()
                values[step.y] = step.run(
                    values, context.params, tiles, _runner(step, cycles, content["seconds"], content["trace"])
                )
                last[name].append(_record(step, cycles))
            for output, tensor in zip(outputs, tensors[len(inputs) :], strict=True):
                tensor[...] = values[output].reshape(tensor.shape)

        return call

    return ExternalFunctions(
        {name: function(name) for name in artifact.functions}, keep=steps, steps=lambda name: last.get(name, ())
    )


def _runner(step: Step, cycles: list[Cycles], seconds: float, spans: bool) -> Run:
    """Return a function that runs work of a step, and adds its cycles to a list."""

    def run(work: Work, *operands: Bits) -> Bits:
        trace = Trace(partial(_show, f"'{step.name}', {work}") if sys.stderr.isatty() else None, spans)
        try:
            result, each = execute(work, *operands, seconds=seconds, trace=trace)
        except SimulatorError as error:
            raise RuntimeError(f"'{step.name}' on the Tensix core: {error}") from error
        cycles.append(each)
        return result

    return run


def _show(what: str, cycles: int) -> None:
    """Write how far a piece of work is on the terminal's last line."""
    print(f"\r\033[K{what}: {cycles} cycles", end="\r", file=sys.stderr, flush=True)


def _record(step: Step, cycles: list[Cycles]) -> DeviceStep:
    simulated, bound, floor = (sum(getattr(each, name) for each in cycles) for name in ("simulated", "bound", "floor"))
    busy = {unit: sum(each.busy[unit] for each in cycles) for unit in cycles[0].busy}
    begins = itertools.accumulate((each.bound for each in cycles), initial=0)
    spans = [
        (unit, begin + first, begin + last)
        for begin, each in zip(begins, cycles, strict=False)
        for unit, first, last in each.spans
    ]
    return DeviceStep(step.name, bound, "cycles", {"simulated": simulated, "bytes take": floor, **busy}, spans)
