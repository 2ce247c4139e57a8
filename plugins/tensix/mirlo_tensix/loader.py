"""Regions at run time: their items on a simulated device, and the numbers of tensors in DRAM."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirlo.extend.runtime import DeviceStep, ExternalArtifact, ExternalFunctions, LoadContext, records_of_json
from mirlo_tensix.instructions import FORMATS
from mirlo_tensix.layouts import CLASSES, Array, Item, Load, Ones, Rearrange, Run, RunShared, Store, Tensor
from mirlo_tensix.simulator import Cycles, Machine, SimulatorError
from mirlo_tensix.unit import DTYPES, Bits

DRAM_RATE = 24
"""Bytes a cycle of a channel of DRAM."""


def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
    """Return functions that run the regions of an artifact; weights are tiled once."""
    content = json.loads(artifact.data)
    regions = {name: Region(content, region, context.params) for name, region in content["regions"].items()}
    functions = {name: regions[name].call for name in artifact.functions}
    return ExternalFunctions(functions, keep=regions, steps=lambda name: regions[name].last)


class Region:
    """A loaded region: its items, its weights as tiles, and what the last call recorded of its operators."""

    def __init__(self, options: Mapping[str, Any], content: Mapping[str, Any], params: Mapping[str, Array]) -> None:
        self.options, self.content, self.params = options, content, params
        self.kind = FORMATS[options["format"]]
        self.items: tuple[Item, ...] = records_of_json(content["items"], CLASSES)
        self.weights: dict[Load, Bits] = {}
        self.last: list[DeviceStep] = []

    def call(self, *tensors: Array) -> None:
        names, options = self.content["inputs"], self.options
        progress = _show if sys.stderr.isatty() else None
        with Machine(options["cores"], options["seconds"], progress, options["trace"]) as machine:
            values = Call(self, machine, dict(zip(names, tensors, strict=False))).run()
        for output, target in zip(self.content["outputs"], tensors[len(names) :], strict=True):
            target[...] = values[output].reshape(-1)[: target.size].reshape(target.shape)


@dataclass
class Call:
    """A call of a region: its device, and the tensors in DRAM."""

    region: Region
    machine: Machine
    values: dict[str, Array]

    def run(self) -> dict[str, Array]:
        kind, pending = self.region.kind, 0
        cycles, moved = dict[tuple[int, str], list[Cycles]](), Counter[tuple[int, str]]()
        for item in self.region.items:
            match item:
                case Load():
                    bits = self._bits(item)
                    self.machine.write(item.at, bits)
                    pending += bits.nbytes
                case Store():
                    size = item.layout.size(kind)
                    self._store(item, self.machine.read(item.at, size))
                    pending += size
                case Rearrange():
                    pending += self._rearrange(item)
                case Run() | RunShared():
                    step = item.number, item.step
                    cycles.setdefault(step, []).append(self._run(item))
                    moved[step] += pending
                    pending = 0
        if cycles:
            moved[step] += pending
        self.region.last = [_record(step[1], every, moved[step]) for step, every in cycles.items()]
        return self.values

    def _bits(self, item: Load) -> Bits:
        weights = self.region.weights
        if item in weights:
            return weights[item]
        bits = item.layout.bits(self.region.kind, *map(self._array, item.sources))
        if all(each.is_constant for each in item.sources):
            weights[item] = bits
        return bits

    def _array(self, tensor: Tensor) -> Array:
        found = (self.region.params if tensor.is_constant else self.values)[tensor.name]
        return np.asarray(found, np.float32).reshape(-1)[: math.prod(tensor.shape)].reshape(tensor.shape)

    def _store(self, item: Store, content: bytes) -> None:
        if (found := self.values.get(item.name)) is None:
            found = self.values[item.name] = np.zeros(item.layout.elements, np.float32)
        item.layout.store(np.frombuffer(content, DTYPES[self.region.kind.name]), found)

    def _rearrange(self, item: Rearrange) -> int:
        """Copy elements in DRAM; return how many bytes are read and written, none where they follow one another."""
        array = self._array(item.source).reshape(-1)[item.first :]
        strides = [array.itemsize * stride for stride in item.strides]
        elements = np.lib.stride_tricks.as_strided(array, item.sizes, strides, writeable=False)
        self.values[item.name] = elements.reshape(-1)
        return 0 if elements.flags.c_contiguous else 2 * elements.size * self.region.kind.bytes

    def _run(self, item: Run | RunShared) -> Cycles:
        try:
            if isinstance(item, Run):
                return self.machine.run(item.work, item.places)
            part, kind = item.work.part, self.region.kind
            left, size = [self._bits(each).reshape(-1) for each in item.left], part.tensor_bytes[0] // kind.bytes
            rows = np.concatenate([np.pad(each[:size], (0, max(0, size - each.size))) for each in left])
            ones = Ones(part.is_plane).bits(kind).reshape(-1) if part.has_bias else None
            content, cycles = self.machine.run_shared(item.work, rows, self._bits(item.right), ones)
            for i, result in enumerate(item.results):
                begin = i * part.tensor_bytes[-1]
                self._store(result, content[begin : begin + result.layout.size(kind)])
            return cycles
        except SimulatorError as error:
            raise RuntimeError(f"'{item.step}' on the Tensix core: {error}") from error


def _show(what: str) -> None:
    """Show the progress of a piece of work on the terminal's last line."""
    print(f"\r\033[K{what}", end="\r", file=sys.stderr, flush=True)


def _record(name: str, every: list[Cycles], moved: int) -> DeviceStep:
    spans, begin = list[tuple[str, float, float]](), 0
    for cycles in every:
        spans += [(unit, begin + first, begin + last) for unit, first, last in cycles.spans]
        begin += cycles.bound
    details = {"simulated": sum(each.simulated for each in every), "bytes take": sum(each.floor for each in every)}
    busy = {unit: sum(each.busy[unit] for each in every) for unit in every[0].busy}
    return DeviceStep(name, begin, "cycles", {**details, **busy, "DRAM": -(-moved // DRAM_RATE)}, spans)
