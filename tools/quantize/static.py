"""Static int8 quantization: data calibrate ranges, measured errors decide what stays in f32."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.driver.compile import compile as compile_model
from mirlo.frontends.onnx.graph import NodeDef
from mirlo.frontends.onnx.model import Source
from mirlo.runtime.errors import nearest
from mirlo.runtime.options import declared_options, refuse_unknown
from mirlo.runtime.records import dataclass
from mirlo.tools.quantize.data import CalibrationData, Feeds, Given, open_data
from mirlo.tools.quantize.errors import QuantizationError
from mirlo.tools.quantize.errors_of_outputs import Difference, Differences
from mirlo.tools.quantize.integer_io import with_integer_io
from mirlo.tools.quantize.nbits import save_model
from mirlo.tools.quantize.network import Network
from mirlo.tools.quantize.operators import role_of
from mirlo.tools.quantize.options import StaticQuantization
from mirlo.tools.quantize.plan import Plan, Selection, Unit, make_plan
from mirlo.tools.quantize.prepare import along, equalize, fold
from mirlo.tools.quantize.ranges import Quantizer, RangeObserver, quantizer_of
from mirlo.tools.quantize.report import QuantizedNode, StaticReport
from mirlo.tools.quantize.writer import (
    SWITCHES,
    UnitNames,
    Writer,
    switches_input,
    write_model,
    write_probe,
)

if TYPE_CHECKING:
    import onnx

    from mirlo.runtime.executable import Executable

PROBE_SAMPLES = 32
"""Samples on which the error of each node is measured: enough to order nodes, few enough for one run per node."""
ReportProgress = Callable[[str], None]


@dataclass(frozen=True)
class QuantizedModel:
    """A quantized model, with its measured errors."""

    model: onnx.ModelProto
    report: StaticReport

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as an ONNX file."""
        save_model(self.model, path)


def quantize(
    model: Source,
    calibrate: Given,
    *,
    progress: ReportProgress | None = None,
    how: StaticQuantization | None = None,
    **options: Any,
) -> QuantizedModel:
    """Quantize an f32 model of ONNX to int8, with QuantizeLinear and DequantizeLinear (QDQ).

    `calibrate` is typical input data: an .npz file, a folder of images or of .npy files, `FILE.py:function`, an array
    or a dict of arrays with the samples along the first axis, or a function that yields the inputs of calls. `options`
    are the fields of `StaticQuantization`.
    """
    if how is None:
        refuse_unknown("quantization", options, declared_options(StaticQuantization), QuantizationError)
        how = StaticQuantization(**options)
    return _Quantizing(Network.of(model), how, progress or (lambda _: None)).run(calibrate)


@dataclass
class _Quantizing:
    network: Network
    how: StaticQuantization
    progress: ReportProgress
    data: CalibrationData = field(init=False)
    floats: frozenset[str] = field(init=False)
    """The f32 values that are inputs, or that nodes with an int8 form read or compute."""
    count: int = 0
    """Samples of the data."""

    def run(self, calibration: Given) -> QuantizedModel:
        network, how = self.network, self.how
        fold(network)
        self._require_names()
        self.progress("compile the f32 model")
        watched = self._watched()
        exact = self._compiled(network.nodes, [*network.outputs, *watched])
        self.data = open_data(calibration, exact.inputs, how.samples, how.images)
        self.floats = frozenset(spec.name for spec in (*exact.inputs, *exact.outputs) if spec.dtype == "f32")
        observers = self._limits(exact, {})
        divided = self._equalized(observers)
        if divided:
            observers = self._limits(exact, divided)
        plan = make_plan(network, self.floats, Selection(how.keep, how.whole))
        if not any(unit.weight is not None for unit in plan.units):
            raise QuantizationError(
                f"{network.model.name}: no node to quantize: expected a product (Conv, Gemm, MatMul) of f32 data with "
                "constant f32 weights, which is not excluded"
            )
        quantizers = self._quantizers(exact, plan, observers, divided)
        units = plan.units
        probe, pairs = self._probe(plan, quantizers, {}, with_values=True)
        own, corrections = self._own_errors(probe, pairs)
        if how.correct_bias:
            probe, _ = self._probe(plan, quantizers, corrections, with_values=False)
        few = self._few()
        effects = self._effects(probe, units, few)
        kept = self._search(probe, units, effects, few)
        message, final, differences = self._final(exact, quantizers, corrections, kept, units, effects)
        report = self._report(final, quantizers, own, effects, differences, units)
        return QuantizedModel(with_integer_io(message) if how.integer_io else message, report)

    def _require_names(self) -> None:
        known = {name for node in self.network.nodes for name in (node.name, node.operator)}
        for name in self.how.keep:
            if name not in known:
                raise QuantizationError(
                    f"keep: {self.network.model.name} has no node and no operator '{name}'"
                    f"{nearest(name, sorted(known))}"
                )

    def _watched(self) -> list[str]:
        """Return the values that nodes with an int8 form compute or read."""
        nodes = [node for node in self.network.nodes if role_of(node.operator, node.domain) is not None]
        known = {value.name for value in self.network.inputs} | set(self.network.constants) | set(self.network.outputs)
        computed = {name for node in self.network.nodes for name in node.outputs}
        names = [name for node in nodes for name in (*node.outputs, *node.inputs) if name in computed]
        return [name for name in dict.fromkeys(names) if name not in known]

    def _compiled(self, nodes: Sequence[NodeDef], outputs: Sequence[str] | None, switches: int = 0) -> Executable:
        inputs = [switches_input(switches)] if switches else []
        message = self.network.message(nodes, outputs, inputs)
        executable: Executable = compile_model(message, threads=self.how.threads, cache=False)
        return executable

    def _limits(self, exact: Executable, divided: Mapping[str, np.ndarray]) -> dict[str, RangeObserver]:
        observers = {name: RangeObserver() for name in self.floats}
        self.count = 0
        for feeds in self.data:
            self.count += self.data.samples(feeds)
            self.progress(f"ranges of {self.count} samples")
            for name, array in self._values(exact, feeds, divided):
                observers[name].see_limits(array, self.how.equalize)
        if not self.count:
            raise QuantizationError(f"{self.data.what}: no samples")
        for name, observer in observers.items():
            if not (np.isfinite(observer.low) and np.isfinite(observer.high)) and observer.high >= observer.low:
                raise QuantizationError(
                    f"{self.network.model.name}: '{name}' has values that are not finite for {self.data.what}"
                )
        return observers

    def _values(
        self, exact: Executable, feeds: Feeds, divided: Mapping[str, np.ndarray]
    ) -> Iterable[tuple[str, np.ndarray]]:
        arrays = {**exact.run(feeds), **feeds}
        for name in self.floats:
            array = arrays[name]
            if name in divided:
                array = _divided(array, divided[name])
            yield name, array

    def _equalized(self, observers: Mapping[str, RangeObserver]) -> dict[str, np.ndarray]:
        if not self.how.equalize:
            return {}
        largest = {name: observer.channels for name, observer in observers.items() if observer.channels is not None}
        return equalize(self.network, largest)

    def _quantizers(
        self,
        exact: Executable,
        plan: Plan,
        observers: Mapping[str, RangeObserver],
        divided: Mapping[str, np.ndarray],
    ) -> dict[str, Quantizer]:
        if self.how.ranges != "minmax":
            seen = 0
            for feeds in self.data:
                seen += self.data.samples(feeds)
                self.progress(f"histograms of {seen} of {self.count} samples")
                for name, array in self._values(exact, feeds, divided):
                    if plan.root(name) == name:
                        observers[name].count(array)
        how = self.how
        return {
            name: quantizer_of(*observer.range(how.ranges, how.percentile), how.unsigned)
            for name, observer in observers.items()
            if name in self.floats
        }

    def _probe(
        self,
        plan: Plan,
        quantizers: Mapping[str, Quantizer],
        corrections: Mapping[str, np.ndarray],
        with_values: bool,
    ) -> tuple[Executable, list[UnitNames]]:
        self.progress("compile the model with switches")
        nodes, pairs = write_probe(Writer(self.network, plan, quantizers, corrections))
        values = [name for pair in pairs for name in (pair.exact, pair.quantized)] if with_values else []
        return self._compiled(nodes, [*self.network.outputs, *values], len(plan.units)), pairs

    def _own_errors(
        self, probe: Executable, pairs: Sequence[UnitNames]
    ) -> tuple[dict[int, float], dict[str, np.ndarray]]:
        """Return the error of each unit on exact data, and by its result the mean error of each channel."""
        own = [Difference() for _ in pairs]
        sums: dict[str, np.ndarray] = {}
        calls: dict[str, int] = {}
        off = np.zeros(len(pairs), bool)
        seen = 0
        for feeds in self.data:
            seen += self.data.samples(feeds)
            self.progress(f"errors of nodes on {seen} of {self.count} samples")
            outputs = probe.run({**feeds, SWITCHES: off})
            for difference, pair in zip(own, pairs, strict=True):
                exact, quantized = outputs[pair.exact], outputs[pair.quantized]
                difference.add(quantized, exact)
                axis = _result_axis(pair.unit, exact)
                if axis is None or not exact.size:
                    continue
                others = tuple(i for i in range(exact.ndim) if i != axis)
                mean = (exact.astype(np.float64) - quantized).mean(axis=others)
                name = pair.unit.output
                sums[name] = sums.get(name, 0.0) + mean * len(exact)
                calls[name] = calls.get(name, 0) + len(exact)
        if not self.how.correct_bias:
            return {i: each.relative for i, each in enumerate(own)}, {}
        corrections = {name: (total / calls[name]).astype(np.float32) for name, total in sums.items()}
        return {i: each.relative for i, each in enumerate(own)}, corrections

    def _few(self) -> list[Feeds]:
        few: list[Feeds] = []
        count = 0
        for feeds in self.data:
            few.append(feeds)
            count += self.data.samples(feeds)
            if count >= PROBE_SAMPLES:
                break
        return few

    def _error(self, probe: Executable, switches: np.ndarray, few: Sequence[Feeds]) -> float:
        differences = Differences()
        off = np.zeros_like(switches)
        for number, feeds in enumerate(few):
            if number not in self._expected:
                outputs = probe.run({**feeds, SWITCHES: off})
                self._expected[number] = {name: outputs[name] for name in self.network.outputs}
            differences.add(probe.run({**feeds, SWITCHES: switches}), self._expected[number])
        return differences.relative

    def _effects(self, probe: Executable, units: Sequence[Unit], few: Sequence[Feeds]) -> list[float]:
        self._expected: dict[int, dict[str, np.ndarray]] = {}
        effects = []
        for i in range(len(units)):
            self.progress(f"effect of node {i + 1} of {len(units)}")
            switches = np.zeros(len(units), bool)
            switches[i] = True
            effects.append(self._error(probe, switches, few))
        return effects

    def _search(
        self, probe: Executable, units: Sequence[Unit], effects: Sequence[float], few: Sequence[Feeds]
    ) -> list[int]:
        """Return the units that stay in f32: the most sensitive ones, without unnecessary ones."""
        budget = self.how.max_error
        if budget is None:
            return []
        order = sorted(range(len(units)), key=lambda i: -effects[i])
        low, high = 0, len(order)  # as many as `high` suffice: then nothing is int8
        while low < high:
            middle = (low + high) // 2
            self.progress(f"outputs with {middle} of {len(units)} nodes in f32")
            if self._error(probe, _switches(len(units), order[:middle]), few) <= budget:
                high = middle
            else:
                low = middle + 1
        kept = order[:high]
        for i in reversed(kept.copy()):
            self.progress(f"outputs with node {i + 1} in int8 again")
            rest = [other for other in kept if other != i]
            if self._error(probe, _switches(len(units), rest), few) <= budget:
                kept = rest
        return kept

    def _final(
        self,
        exact: Executable,
        quantizers: Mapping[str, Quantizer],
        corrections: Mapping[str, np.ndarray],
        kept: list[int],
        units: Sequence[Unit],
        effects: Sequence[float],
    ) -> tuple[onnx.ModelProto, Plan, Differences]:
        """Return the int8 model; more nodes stay in f32 until the error of the model itself is within the budget."""
        order = sorted(range(len(units)), key=lambda i: -effects[i])
        while True:
            names = {node.name for i in kept for node in units[i].nodes}
            plan = make_plan(self.network, self.floats, Selection((*self.how.keep, *names), self.how.whole))
            self._searched = names
            writer = Writer(self.network, plan, quantizers, corrections)
            message = self.network.message(write_model(writer, self.how.whole))
            self.progress("compile the int8 model")
            compiled = compile_model(message, threads=self.how.threads, cache=False)
            differences, seen = Differences(), 0
            for feeds in self.data:
                seen += self.data.samples(feeds)
                self.progress(f"error of the int8 model on {seen} of {self.count} samples")
                actual, expected = compiled.run(feeds), exact.run(feeds)
                differences.add(actual, {name: expected[name] for name in self.network.outputs})
            if not differences.by_output:
                raise QuantizationError(f"{self.network.model.name}: no output is f32: no error can be measured")
            budget = self.how.max_error
            rest = [i for i in order if i not in kept]
            if budget is None or differences.relative <= budget or not rest:
                return message, plan, differences
            kept = [*kept, rest[0]]

    def _report(
        self,
        plan: Plan,
        quantizers: Mapping[str, Quantizer],
        own: Mapping[int, float],
        effects: Sequence[float],
        differences: Differences,
        units: Sequence[Unit],
    ) -> StaticReport:
        numbers = {id(node): i for i, unit in enumerate(units) for node in unit.nodes}
        int8 = {id(node) for unit in plan.units for node in unit.nodes} | set(plan.movers)
        rows = []
        for node in self.network.nodes:
            number = numbers.get(id(node))
            measured = number if number is not None and units[number].node is node else None
            quantizer = quantizers.get(plan.root(node.outputs[0])) if id(node) in int8 and node.outputs else None
            why = "max_error" if node.name in self._searched else plan.reasons.get(node.name, "")
            is_int8 = id(node) in int8
            rows.append(
                QuantizedNode(
                    node.name,
                    node.operator,
                    is_int8,
                    None if measured is None else own[measured],
                    None if measured is None else effects[measured],
                    None if quantizer is None else quantizer.range,
                    "" if is_int8 else why,
                )
            )
        return StaticReport(self.network.model.name, self.count, differences.outputs(), tuple(rows))


def _switches(count: int, kept: Iterable[int]) -> np.ndarray:
    switches = np.ones(count, bool)
    switches[list(kept)] = False
    return switches


def _divided(array: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Divide the channels of a value; flattened ones have several elements each."""
    count = array.shape[1] // len(factors)
    return np.asarray(array / along(np.repeat(factors, count), 1, array.ndim), np.float32)


def _result_axis(unit: Unit, result: np.ndarray) -> int | None:
    """Return the axis of a product's result that has a bias for each element; None if there is no bias."""
    if unit.weight != 1 or unit.axis is None or result.ndim < 2:
        return None
    if unit.node.operator == "MatMul" and unit.bias is None:
        return None
    if len(unit.node.inputs) > 2 and unit.node.inputs[2] and unit.bias is None:
        return None
    return 1 if unit.node.operator in ("Conv", "ConvTranspose") else result.ndim - 1


def quantize_static_file(
    source: str, target: str | Path, data: str, how: StaticQuantization, progress: ReportProgress
) -> StaticReport:
    """Quantize an ONNX file and write another; return the measured errors."""
    if Path(source).resolve() == Path(target).resolve():
        raise QuantizationError(f"'{target}' is the model itself: name another file")
    quantized = quantize(source, data, progress=progress, how=how)
    quantized.save(target)
    return quantized.report
