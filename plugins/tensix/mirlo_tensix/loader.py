"""Regions at run time: products on the simulated core, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirlo.extend.runtime import DeviceStep, ExternalArtifact, ExternalFunctions, LoadContext
from mirlo_tensix.generator import BIAS_ROWS, Step, steps_of
from mirlo_tensix.simulator import Cycles, SimulatorError, execute
from mirlo_tensix.unit import Bits, from_bf16, from_tiles, to_bf16, to_tiles

Array = NDArray[np.float32]


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Return functions that run the regions of an artifact; weights are tiled once."""
    regions: dict[str, Any] = json.loads(artifact.data)
    steps = {name: steps_of(region) for name, region in regions.items()}
    weights = {
        (step.weight, step.bias): to_tiles(weights_of(step, context.params))
        for each in steps.values()
        for step in each
        if step.is_constant
    }
    last: dict[str, list[DeviceStep]] = {}

    def function(name: str) -> Callable[..., None]:
        inputs, outputs = regions[name]["ends"]

        def call(*tensors: Array) -> None:
            values = dict(zip(inputs, tensors, strict=False))
            last[name] = []
            for step in steps[name]:
                tiles = weights.get((step.weight, step.bias)) if step.is_constant else None
                values[step.y] = _run(step, values, tiles, last[name])
            for output, tensor in zip(outputs, tensors[len(inputs) :], strict=True):
                tensor[...] = values[output].reshape(tensor.shape)

        return call

    return ExternalFunctions(
        {name: function(name) for name in artifact.functions}, keep=weights, steps=lambda name: last.get(name, ())
    )


def operand_of(step: Step, x: Array) -> Bits:
    """Return a matrix of the left operand as bf16: ones multiply the rows of the bias."""
    bits = to_bf16(x)
    return (
        np.concatenate([bits, np.full((len(bits), BIAS_ROWS), to_bf16(np.ones(1, np.float32))[0])], 1)
        if step.bias
        else bits
    )


def weights_of(step: Step, params: Mapping[str, Array]) -> Bits:
    """Return weights as bf16, and rows whose sum is the bias."""
    bits = to_bf16(np.asarray(params[step.weight], np.float32))
    if step.bias is None:
        return bits
    rest, rows = np.asarray(params[step.bias], np.float32), []
    for _ in range(BIAS_ROWS):
        rows.append(to_bf16(rest))
        rest = rest - from_bf16(rows[-1])
    return np.concatenate([bits, np.stack(rows)])


def _run(step: Step, values: Mapping[str, Array], weights: Bits | None, record: list[DeviceStep]) -> Array:
    x = np.asarray(values[step.x]).reshape(step.batch, step.rows, step.depth)
    if weights is None:
        right = np.asarray(values[step.weight]).reshape(step.batch, step.depth, step.columns)
    y = np.empty((step.batch, step.rows, step.columns), np.float32)
    product, cycles = step.product(), list[Cycles]()
    for i in range(step.batch):
        tiles = to_tiles(to_bf16(right[i])) if weights is None else weights
        try:
            result, each = execute(product, to_tiles(operand_of(step, x[i])), tiles)
        except SimulatorError as error:
            raise RuntimeError(f"'{step.name}' on the Tensix core: {error}") from error
        y[i] = from_bf16(from_tiles(result, step.rows, step.columns))
        cycles.append(each)
    simulated, bound, mvmul = (sum(getattr(each, name) for each in cycles) for name in ("simulated", "bound", "mvmul"))
    record.append(DeviceStep(step.name, bound, "cycles", {"simulated": simulated, "mvmul": mvmul}))
    return y
