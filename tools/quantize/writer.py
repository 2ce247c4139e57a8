"""Nodes of int8 models: QuantizeLinear and DequantizeLinear around what is computed in int8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from mirlo.frontends.onnx.graph import NodeDef, TypeDef, ValueDef, attribute_of, node_of
from mirlo.runtime.records import dataclass
from mirlo.tools.quantize.network import Network
from mirlo.tools.quantize.operators import Role, role_of
from mirlo.tools.quantize.plan import Plan, Unit
from mirlo.tools.quantize.prepare import along
from mirlo.tools.quantize.ranges import Quantizer, quantizer_of

LARGEST_BIAS = 1 << 30
"""Most that a bias has in units of its scale: with the products that are added to it, it stays within i32."""
SMALLEST_SCALE = np.float32(1e-30)
"""The scale of a channel whose weights and bias are 0."""
SWITCHES = "switches"


@dataclass(frozen=True)
class UnitNames:
    """The values of a unit in a probe, before its activation: in f32 and in int8."""

    unit: Unit
    exact: str
    quantized: str


@dataclass
class Writer:
    """Writes nodes for the quantized parts of a network."""

    network: Network
    plan: Plan
    quantizers: Mapping[str, Quantizer]
    """By the value that determines a scale."""
    corrections: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By the result of a unit, what is added to its bias."""
    nodes: list[NodeDef] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    """By an output of the model that is rounded, the name of its value before that."""
    _rounded: dict[str, str] = field(default_factory=dict)
    _weights: dict[tuple[str, int | None, bytes], str] = field(default_factory=dict)

    def emit(self, operator: str, inputs: list[str], result: str, axis: int | None = None) -> str:
        attributes = () if axis is None else (attribute_of("axis", axis),)
        self.nodes.append(replace(node_of(operator, inputs, [result]), name=result, attributes=attributes))
        return result

    def rounded(self, name: str) -> str:
        """Return a value after it was quantized."""
        if name not in self._rounded:
            quantizer = self.quantizers[self.plan.root(name)]
            scale = self._constant(np.array(quantizer.scale), f"{self.plan.root(name)}_scale")
            zero = self._constant(quantizer.stored(np.zeros((), np.float32)), f"{self.plan.root(name)}_zero_point")
            stored = self.network.fresh(f"{name}_quantized")
            result = name if name in self.renamed else self.network.fresh(f"{name}_dequantized")
            self.emit("QuantizeLinear", [self.renamed.get(name, name), scale, zero], stored)
            self._rounded[name] = self.emit("DequantizeLinear", [stored, scale, zero], result)
        return self._rounded[name]

    def _constant(self, array: np.ndarray, base: str) -> str:
        """Return a constant of this content, which values with the same scale share."""
        key = (base, None, array.tobytes())
        if key not in self._weights:
            self._weights[key] = self.network.add(array, base)
        return self._weights[key]

    def _weight_scales(self, unit: Unit, x: Quantizer, bias: np.ndarray | None) -> np.ndarray:
        """Return the scale of the weights, or that of each channel."""
        assert unit.weight is not None
        weight = self.network.array(unit.node.inputs[unit.weight])
        others = None if unit.axis is None else tuple(i for i in range(weight.ndim) if i != unit.axis)
        scales = np.asarray(np.abs(weight).max(axis=others, initial=0) / 127, np.float32)
        if bias is not None:
            scales = np.maximum(scales, (np.abs(bias) / (x.scale * LARGEST_BIAS)).astype(np.float32))
        return np.asarray(np.maximum(scales, SMALLEST_SCALE), np.float32)

    def _weight(self, name: str, axis: int | None, scales: np.ndarray) -> str:
        key = (name, axis, scales.tobytes())
        if key not in self._weights:
            weight = self.network.array(name)
            spread = scales if axis is None else along(scales, axis, weight.ndim)
            stored = np.clip(np.rint(weight / spread), -127, 127).astype(np.int8)
            self._weights[key] = self._dequantized(stored, scales, axis, name)
        return self._weights[key]

    def _dequantized(self, stored: np.ndarray, scales: np.ndarray, axis: int | None, base: str) -> str:
        inputs = [self.network.add(stored, f"{base}_quantized"), self.network.add(scales, f"{base}_scale")]
        inputs.append(self.network.add(np.zeros(scales.shape, stored.dtype), f"{base}_zero_point"))
        result = self.network.fresh(f"{base}_dequantized")
        return self.emit("DequantizeLinear", inputs, result, axis)

    def unit(self, unit: Unit, names: Mapping[str, str] | None = None) -> None:
        """Write a unit in int8; `names` rename its results."""
        renamed = names or self.renamed
        inputs, tail = list(unit.node.inputs), list(unit.tail)
        for place in unit.data:
            name = inputs[place]
            inputs[place] = self._constant_data(name) if name in self.network.constants else self.rounded(name)
        correction = self.corrections.get(unit.output)
        if unit.weight is not None:
            x = self.quantizers[self.plan.root(unit.node.inputs[1 - unit.weight])]
            bias = None if unit.bias is None else self.network.array(unit.bias)
            if correction is not None:
                bias = correction if bias is None else bias + correction
            scales = self._weight_scales(unit, x, bias if unit.axis is not None else None)
            inputs[unit.weight] = self._weight(inputs[unit.weight], unit.axis, scales)
            if bias is not None and unit.axis is not None:
                self._add_bias(unit, inputs, tail, bias, x, scales)
        inner = {name: renamed[name] for each in unit.nodes for name in each.outputs if name in renamed}
        for node in (replace(unit.node, inputs=tuple(inputs)), *tail):
            self.nodes.append(
                replace(
                    node,
                    inputs=tuple(inner.get(name, name) for name in node.inputs),
                    outputs=tuple(renamed.get(name, name) for name in node.outputs),
                )
            )

    def _add_bias(
        self, unit: Unit, inputs: list[str], tail: list[NodeDef], bias: np.ndarray, x: Quantizer, scales: np.ndarray
    ) -> None:
        """Write the bias as i32 in units of a product, as an input of the node or of the sum after it."""
        product = np.asarray(x.scale * scales, np.float32)
        stored = np.clip(np.rint(bias.astype(np.float64) / product), -(2**31), 2**31 - 1).astype(np.int32)
        result = self._dequantized(stored, product, 0, unit.bias or f"{unit.output}_bias")
        if unit.bias is not None and tail and unit.bias in tail[0].inputs:
            tail[0] = replace(tail[0], inputs=tuple(result if each == unit.bias else each for each in tail[0].inputs))
            return
        inputs[2:] = [result]

    def _constant_data(self, name: str) -> str:
        """Write a constant that is added, multiplied or joined with data."""
        array = self.network.array(name)
        quantizer = quantizer_of(float(array.min(initial=0)), float(array.max(initial=0)))
        key = (name, None, b"data")
        if key not in self._weights:
            parts = [quantizer.stored(array), np.array(quantizer.scale), np.array(quantizer.zero, np.int8)]
            inputs = [
                self.network.add(part, f"{name}_{what}")
                for part, what in zip(parts, ("quantized", "scale", "zero_point"), strict=True)
            ]
            self._weights[key] = self.emit("DequantizeLinear", inputs, self.network.fresh(f"{name}_dequantized"))
        return self._weights[key]


def write_model(writer: Writer, whole: bool) -> list[NodeDef]:
    """Return the nodes of the int8 model; `whole` rounds values that other nodes and the model's outputs read, too."""
    network, plan = writer.network, writer.plan
    first = {id(unit.node): unit for unit in plan.units}
    joined = {id(node) for unit in plan.units for node in unit.tail}
    int8 = {unit.output for unit in plan.units} | {n for node in plan.movers.values() for n in node.outputs}
    if whole:
        writer.renamed = {name: network.fresh(f"{name}_f32") for name in network.outputs if name in int8}
    for node in network.nodes:
        if id(node) in joined:
            continue
        if id(node) in first:
            writer.unit(first[id(node)])
        elif id(node) in plan.movers:
            inputs = (writer.rounded(node.inputs[0]), *node.inputs[1:])
            outputs = tuple(writer.renamed.get(name, name) for name in node.outputs)
            writer.nodes.append(replace(node, inputs=inputs, outputs=outputs))
        else:
            inputs = tuple(writer.rounded(name) if whole and name in int8 else name for name in node.inputs)
            writer.nodes.append(replace(node, inputs=inputs))
    for name in network.outputs:
        if name in writer.renamed:
            writer.rounded(name)
    return writer.nodes


def write_probe(writer: Writer) -> tuple[list[NodeDef], list[UnitNames]]:
    """Return the nodes of a model in which an input switches each unit between f32 and int8."""
    network, plan = writer.network, writer.plan
    numbers = {id(unit.node): i for i, unit in enumerate(plan.units)}
    joined = {id(node) for unit in plan.units for node in unit.tail}
    pairs = []
    for node in network.nodes:
        if id(node) in joined:
            continue
        if id(node) not in numbers:
            writer.nodes.append(node)
            continue
        unit = plan.units[numbers[id(node)]]
        exact, quantized = (
            {name: network.fresh(f"{name}_{kind}") for each in unit.nodes for name in each.outputs}
            for kind in ("f32", "int8")
        )
        for each in unit.nodes:
            inputs = tuple(exact.get(name, name) for name in each.inputs)
            writer.nodes.append(replace(each, inputs=inputs, outputs=tuple(exact[name] for name in each.outputs)))
        writer.unit(unit, quantized)
        place = network.add(np.array(numbers[id(node)], np.int64), f"{unit.output}_number")
        switch = writer.emit("Gather", [SWITCHES, place], network.fresh(f"{unit.output}_switch"), axis=0)
        writer.emit("Where", [switch, quantized[unit.output], exact[unit.output]], unit.output)
        before = [each for each in unit.nodes if not _is_activation(each)]
        last = (before or [unit.node])[-1].outputs[0]
        pairs.append(UnitNames(unit, exact[last], quantized[last]))
    return writer.nodes, pairs


def _is_activation(node: NodeDef) -> bool:
    role = role_of(node.operator, node.domain)
    return role is not None and role.activation and role.role is not Role.PRODUCT


def switches_input(count: int) -> ValueDef:
    """Return the declaration of the input that switches the units of a probe."""
    return ValueDef(SWITCHES, TypeDef("tensor", 9, (count,)))
