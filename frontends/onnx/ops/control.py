"""Control flow. Loops whose number of rounds import time knows are unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.runtime_sizes import bind, scalar
from mirlo.frontends.onnx.values import AnyValue, ListValue, Value, constant

MOST_ROUNDS = 1024
"""More would make functions that take too long to compile."""


@converter("If")
def if_(node: Node) -> Any:
    """A condition that import time knows picks a branch; another one becomes scf.if."""
    then_branch, else_branch = node.attr.graph("then_branch"), node.attr.graph("else_branch")
    if node.value(0).is_constant:
        return node.builder.branch(then_branch if node.scalar(0) else else_branch)
    return node.builder.choose(node.value(0), then_branch, else_branch)


@converter("Loop")
def loop(node: Node) -> Any:
    """Rounds that import time can count are unrolled; others become scf.while."""
    body = node.attr.graph("body")
    carried = [node.any_value(i) for i in range(2, len(node.inputs))]
    if len(body.input) != 2 + len(carried) or len(body.output) < 1 + len(carried):
        raise NodeError(
            f"the body must have {2 + len(carried)} inputs and at least {1 + len(carried)} outputs, "
            f"got {len(body.input)} and {len(body.output)}"
        )
    limit, going = (node.value(i) if node.has(i) else None for i in range(2))
    made = None
    if all(value is None or value.is_constant for value in (limit, going)):
        made = _unrolled(node, body, carried)
    return _compiled(node, body, limit, going, carried) if made is None else made


def _unrolled(node: Node, body: Any, carried: list[AnyValue]) -> list[Any] | None:
    """The rounds one after the other; None where their number depends on data, or is large."""
    limit = node.scalar(0) if node.has(0) else None
    going = bool(node.scalar(1, True))
    if going and limit is not None and limit > MOST_ROUNDS:
        return None
    collected: list[list[AnyValue]] = [[] for _ in body.output[1 + len(carried) :]]
    done = 0
    while going and (limit is None or done < limit):
        if done >= MOST_ROUNDS:
            return None
        given = [constant("", np.array(done, np.int64)), constant("", np.array(True)), *carried]
        condition, *results = node.builder.branch(body, given, f"{done}/")
        if not isinstance(condition, Value) or not condition.is_constant:
            return None
        going = bool(condition.known)
        carried = results[: len(carried)]
        for sequence, value in zip(collected, results[len(carried) :], strict=True):
            sequence.append(value)
        done += 1
    return [*carried, *(_stacked(node, sequence, 0) for sequence in collected)]


def _compiled(
    node: Node, body: Any, limit: Value | None, going: Value | None, carried: Sequence[AnyValue]
) -> list[Any]:
    if len(body.output) == 1 + len(carried):
        return list(node.builder.repeat(body, limit, going, carried))
    if limit is None:
        raise NodeError(
            f"output '{body.output[1 + len(carried)].name}' of the body is collected from each round, but nothing says "
            "how many rounds there are at most: give input 'M'"
        )
    most = node.emit("maximum", scalar(node, 0), node.constant(np.int64(0)))
    (room,) = bind(node, node.emit("reshape", most, shape=(1,)), "the number of rounds")
    *made, used = node.builder.repeat(body, limit, going, carried, room)
    (count,) = bind(node, node.emit("reshape", used, shape=(1,)), "the number of rounds that were made", [room])
    return [*made[: len(carried)], *(_first(node, rows, count) for rows in made[len(carried) :])]


def _first(node: Node, rows: Any, count: Any) -> Any:
    found = type_of(rows)
    zeros, ones = [0] * found.rank, [1] * found.rank
    return node.emit("slice_dims", rows, begin=zeros, shape=(count, *found.shape[1:]), strides=ones)


@converter("Scan", since=9)
def scan(node: Node) -> Any:
    body, count = node.attr.graph("body"), node.attr.int("num_scan_inputs")
    states = _states(len(node.inputs), count, body)
    results = len(body.output) - states
    sequences = [
        _elements(node, states + i, axis, backwards)
        for i, (axis, backwards) in enumerate(
            zip(
                _per_value(node, "scan_input_axes", count),
                _per_value(node, "scan_input_directions", count),
                strict=True,
            )
        )
    ]
    if len({len(sequence) for sequence in sequences}) != 1:
        raise NodeError(f"the scanned inputs must have one length, got {', '.join(str(len(s)) for s in sequences)}")
    output_axes = _per_value(node, "scan_output_axes", results)
    output_directions = _per_value(node, "scan_output_directions", results)
    carried = [node.any_value(i) for i in range(states)]
    collected: list[list[AnyValue]] = [[] for _ in range(results)]
    for done, elements in enumerate(zip(*sequences, strict=True)):
        made = node.builder.branch(body, [*carried, *elements], f"{done}/")
        carried = made[:states]
        for sequence, value in zip(collected, made[states:], strict=True):
            sequence.append(value)
    stacked = [
        _stacked(node, sequence[::-1] if backwards else sequence, axis)
        for sequence, axis, backwards in zip(collected, output_axes, output_directions, strict=True)
    ]
    return [*carried, *stacked]


def _states(inputs: int, count: int, body: Any) -> int:
    """How many of the inputs are carried from round to round."""
    states = inputs - count
    if count < 1 or states < 0 or len(body.input) != inputs or len(body.output) < states:
        raise NodeError(f"attribute 'num_scan_inputs' is {count}, which does not fit {inputs} inputs and the body")
    return states


@converter("Scan")
def batched_scan(node: Node) -> Any:
    """Operator set 8: every input has a batch dim first, and the sequences of a batch have lengths of their own."""
    body, count = node.attr.graph("body"), node.attr.int("num_scan_inputs")
    states = _states(len(node.inputs) - 1, count, body)
    batch = node.type(1).shape[0] if node.type(1).rank else 0
    if not isinstance(batch, int) or batch < 1:
        raise NodeError(f"every input must have a known batch dim first, got {node.type(1)}")
    directions = _per_value(node, "directions", count)
    sequences = [_elements(node, 1 + states + i, 1, backwards) for i, backwards in enumerate(directions)]
    longest = len(sequences[0])
    lengths = node.ints(0) if node.has(0) else [longest] * batch
    if len(lengths) != batch or any(not 1 <= length <= longest for length in lengths):
        raise NodeError(f"input 'sequence_lens' must be {batch} numbers from 1 to {longest}, got {lengths}")
    samples = [_one_of_batch(node, body, i, states, sequences, lengths[i]) for i in range(batch)]
    return [_stacked(node, values, 0) for values in zip(*samples, strict=True)]


def _one_of_batch(
    node: Node, body: Any, index: int, states: int, sequences: list[list[Value]], length: int
) -> list[Any]:
    """The states after the last round, and the outputs of the rounds, with zeros after them."""

    def own(value: Value) -> Value:
        position = node.constant(np.array(index, np.int64))
        made = node.emit("gather", node.builder.ssa(value), position, axis=0)
        return Value("", type_of(made), ir=made)

    carried: list[AnyValue] = [own(node.value(1 + i)) for i in range(states)]
    collected: list[list[Any]] = [[] for _ in body.output[states:]]
    for step in range(length):
        made = node.builder.branch(
            body, [*carried, *(own(sequence[step]) for sequence in sequences)], f"{index}/{step}/"
        )
        carried = made[:states]
        for sequence, value in zip(collected, made[states:], strict=True):
            sequence.append(node.builder.ssa(value))
    for sequence in collected:
        zero = node.emit("full", shape=type_of(sequence[0]).shape, value=0, dtype=type_of(sequence[0]).dtype)
        sequence += [zero] * (len(sequences[0]) - length)
    return [*carried, *(node.emit("stack", sequence, axis=0) for sequence in collected)]


def _per_value(node: Node, attribute: str, count: int) -> list[int]:
    values = node.attr.ints(attribute, None) or [0] * count
    if len(values) != count:
        raise NodeError(f"attribute '{attribute}' must have {count} numbers, got {len(values)}")
    return values


def _elements(node: Node, index: int, axis: int, backwards: int) -> list[Value]:
    """The slices of an input along an axis, in the order in which they are scanned."""
    found = node.type(index)
    if not -found.rank <= axis < found.rank:
        raise NodeError(f"attribute 'scan_input_axes' names axis {axis} of {found}")
    length = found.shape[axis]
    if not isinstance(length, int):
        raise NodeError(f"the number of rounds must be known, but it is {length}; fix the shapes of the model's inputs")
    _require_few(length - 1)
    pieces = node.emit("split", node[index], axis=axis, sizes=(1,) * length) if length > 1 else node[index]
    values = [node.emit("squeeze", x, axes=[axis]) for x in (pieces if isinstance(pieces, tuple) else (pieces,))]
    made = [Value("", type_of(value), ir=value) for value in values]
    return made[::-1] if backwards else made


def _stacked(node: Node, sequence: Sequence[AnyValue], axis: int) -> Any:
    if not sequence:
        raise NodeError("the loop has no rounds, so that the shape of what it collects is not known")
    values = [node.builder.ssa(value) if isinstance(value, (Value, ListValue)) else value for value in sequence]
    return node.emit("stack", values, axis=axis)


def _require_few(done: int) -> None:
    if done >= MOST_ROUNDS:
        raise NodeError(f"loops of more than {MOST_ROUNDS} rounds are not supported")
