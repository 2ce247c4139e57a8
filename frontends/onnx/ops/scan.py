"""Scan: iterations over slices of sequences. Few are unrolled; more, or a dynamic number, become a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.infer import require_equal_dims
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import GraphDef
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.control import stacked
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import AnyValue, Converted, LoopIteration
from mirlo.frontends.tensor import Tensor, minimum, stack
from mirlo.runtime.records import dataclass

MAX_UNROLLED_SLICES = 16
"""Most slices to unroll iterations for: a loop is as fast for more, and compiles in the time of one iteration."""


@dataclass(frozen=True)
class _Sequence:
    """A scanned tensor: its slices along an axis, possibly in reverse."""

    node: Node
    value: Tensor
    axis: int
    backwards: bool

    @property
    def length(self) -> Dim:
        return self.value.type.shape[self.axis]

    def at(self, number: Tensor) -> Tensor:
        """Return the slice of an iteration, whose number is a tensor of rank 0."""
        position = self.node.size(self.length - 1) - number if self.backwards else number
        return self.value.gather(position, self.axis)

    def slices(self) -> list[Tensor]:
        """Return all slices, a known number, in the order of the iterations."""
        length = self.length
        assert isinstance(length, int)
        pieces = self.value.split((1,) * length, self.axis) if length > 1 else [self.value]
        squeezed = [x.squeeze(self.axis) for x in pieces]
        return squeezed[::-1] if self.backwards else squeezed


@converter("Scan", since=9)
def scan(node: Node) -> Converted:
    body, count = node.attr.graph("body"), node.attr.int("num_scan_inputs")
    states = _states(len(node.inputs), count, body)
    results = len(body.outputs) - states
    axes = _per_value(node, "scan_input_axes", count)
    backwards = _per_value(node, "scan_input_directions", count)
    sequences = [_sequence(node, states + i, axes[i], backwards[i]) for i in range(count)]
    output_axes = _per_value(node, "scan_output_axes", results)
    output_backwards = _per_value(node, "scan_output_directions", results)
    carried = [node.any_value(i) for i in range(states)]
    length = _length(sequences)
    if not isinstance(length, int) or not 0 < length <= MAX_UNROLLED_SLICES:
        result = _rounds(node, body, carried, sequences, node.size(length), length, output_backwards)
        return [*result[:states], *map(_with_axis, [node] * results, result[states:], output_axes)]
    collected: list[list[AnyValue]] = [[] for _ in range(results)]
    for done, elements in enumerate(zip(*(each.slices() for each in sequences), strict=True)):
        result = node.builder.branch(body, [*carried, *elements], f"{done}/")
        carried = result[:states]
        for sequence, value in zip(collected, result[states:], strict=True):
            sequence.append(value)
    return [
        *carried,
        *(
            stacked(node, sequence[::-1] if reverse else sequence, axis)
            for sequence, axis, reverse in zip(collected, output_axes, output_backwards, strict=True)
        ),
    ]


def _rounds(
    node: Node,
    body: GraphDef,
    carried: Sequence[AnyValue],
    sequences: Sequence[_Sequence],
    rounds: Tensor,
    room: Dim,
    backwards: Sequence[int],
) -> list[Any]:
    """Make a loop; return its carried values and scan outputs, padded with zeros."""

    def make(number: Tensor, going: Tensor, values: list[AnyValue]) -> tuple[AnyValue, list[AnyValue], list[AnyValue]]:
        outputs = node.builder.branch(body, [*values, *(sequence.at(node.ssa(number)) for sequence in sequences)])
        return going, outputs[: len(carried)], outputs[len(carried) :]

    *outputs, _ = node.builder.loop(
        LoopIteration(
            make,
            carried=body.inputs[: len(carried)],
            collected=body.outputs[len(carried) :],
            backwards=[bool(each) for each in backwards],
        ),
        rounds,
        None,
        carried,
        room,
    )
    return outputs


def _with_axis(node: Node, rows: Tensor, axis: int) -> Tensor:
    """Return rows as slices along another axis than the first."""
    rank = rows.type.rank
    if not -rank <= axis < rank:
        raise NodeError(f"attribute 'scan_output_axes' names axis {axis} of {rows.type}")
    axes = list(range(1, rank))
    axes.insert(axis % rank, 0)
    return rows.permute(axes) if axis % rank else rows


@converter("Scan")
def batched_scan(node: Node) -> Converted:
    """Convert opset 8: every input has a batch dim first, and the sequences of a batch have their own lengths."""
    body, count = node.attr.graph("body"), node.attr.int("num_scan_inputs")
    states = _states(len(node.inputs) - 1, count, body)
    batch = node.type(1).shape[0] if node.type(1).rank else 0
    if batch == 0:
        raise NodeError(f"every input must have a batch dim first, got {node.type(1)}")
    backwards = _per_value(node, "directions", count)
    sequences = [_sequence(node, 1 + states + i, 1, each) for i, each in enumerate(backwards)]
    longest = _length(sequences)
    lengths = _lengths(node, longest, batch)
    if lengths is not None:
        assert isinstance(longest, int) and isinstance(batch, int)
        slices = [sequence.slices() for sequence in sequences]
        samples = [_one_of_batch(node, body, i, states, slices, lengths[i]) for i in range(batch)]
        return [stacked(node, values, 0) for values in zip(*samples, strict=True)]

    def make(number: Tensor, going: Tensor, _: list[AnyValue]) -> tuple[AnyValue, list[AnyValue], list[AnyValue]]:
        own = [_Sequence(node, each.value.gather(number), 0, each.backwards) for each in sequences]
        carried = [node[1 + i].gather(number) for i in range(states)]
        rounds = node.size(longest)
        if node.has(0):
            length = node.vector(0).gather(number)
            rounds = minimum(length, node.ssa(rounds))
        outputs = _rounds(node, body, carried, own, rounds, longest, [0] * (len(body.outputs) - states))
        return going, [], [each if isinstance(each, Tensor) else each for each in outputs]

    *outputs, _ = node.builder.loop(LoopIteration(make), node.size(batch), None, [], batch)
    return outputs


def _lengths(node: Node, longest: Dim, batch: Dim) -> list[int] | None:
    """Return the trip count of each sequence of the batch; None if it is data-dependent or large."""
    for size in (longest, batch):
        if not isinstance(size, int) or not 0 < size <= MAX_UNROLLED_SLICES:
            return None
    assert isinstance(longest, int) and isinstance(batch, int)
    if not node.has(0):
        return [longest] * batch
    if node.value(0).array is None:
        return None
    lengths = node.ints(0)
    if len(lengths) != batch or any(not 1 <= length <= longest for length in lengths):
        raise NodeError(f"input 'sequence_lens' must be {batch} numbers from 1 to {longest}, got {lengths}")
    return lengths


def _one_of_batch(
    node: Node, body: GraphDef, index: int, states: int, slices: Sequence[Sequence[Tensor]], length: int
) -> list[Any]:
    """Return the final states, and the scan outputs padded with zeros."""

    def own(value: Tensor) -> Tensor:
        position = node.constant(np.array(index, np.int64))
        return node.ssa(value).gather(position)

    carried: list[AnyValue] = [own(node.value(1 + i)) for i in range(states)]
    collected: list[list[Tensor]] = [[] for _ in body.outputs[states:]]
    for step in range(length):
        outputs = node.builder.branch(body, [*carried, *(own(each[step]) for each in slices)], f"{index}/{step}/")
        carried = outputs[:states]
        for sequence, value in zip(collected, outputs[states:], strict=True):
            sequence.append(node.ssa(value))
    for rows in collected:
        zero = node.emit("full", shape=rows[0].type.shape, value=0, dtype=rows[0].type.dtype)
        rows += [zero] * (len(slices[0]) - length)
    return [*carried, *(stack(rows, axis=0) for rows in collected)]


def _states(inputs: int, count: int, body: GraphDef) -> int:
    """Return how many of the inputs are carried between iterations."""
    states = inputs - count
    if count < 1 or states < 0 or len(body.inputs) != inputs or len(body.outputs) < states:
        raise NodeError(f"attribute 'num_scan_inputs' is {count}, which does not fit {inputs} inputs and the body")
    return states


def _per_value(node: Node, attribute: str, count: int) -> list[int]:
    values = node.attr.ints(attribute, None) or [0] * count
    if len(values) != count:
        raise NodeError(f"attribute '{attribute}' must have {count} numbers, got {len(values)}")
    return values


def _sequence(node: Node, index: int, axis: int, backwards: int) -> _Sequence:
    tensor_type = node.type(index)
    if not -tensor_type.rank <= axis < tensor_type.rank:
        raise NodeError(f"attribute 'scan_input_axes' names axis {axis} of {tensor_type}")
    return _Sequence(node, node[index], axis % tensor_type.rank, bool(backwards))


def _length(sequences: Sequence[_Sequence]) -> Dim:
    """Return the common length of all sequences."""
    first = sequences[0].length
    for other in sequences[1:]:
        require_equal_dims(other.length, first, "the lengths of the scanned inputs")
    return first
