"""Search for runs of equal layers in a graph: operations that repeat with a period, with equal wiring."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import attributes_of, captured, replace_inside
from mirlo.passes.locations import names_of
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.records import dataclass

LEAST_LAYERS = 8
"""Fewest layers of a run of which some are compiled in place of all."""
LEAST_OPERATIONS = 8
"""Fewest operations of a layer."""
CONSTANT, RETURN = "relax.constant", "func.return"
TEXT = "what"
"""The attribute with the text of an error, which begins with the names of nodes."""


@dataclass(frozen=True)
class Layer:
    """One layer of a run. Positions in these lists stand for the same thing in each layer of the run."""

    operations: tuple[ir.Operation, ...]
    inputs: tuple[int, ...]
    """The arguments of the function that only this layer reads, such as its cache."""
    constants: tuple[tuple[int, ...], ...]
    """The constants of this layer that others have with other elements: the numbers of their operations, each of which
    has the same elements."""
    outputs: tuple[int, ...]
    """The results of the function that this layer computes."""


@dataclass(frozen=True)
class LayerRun:
    """Consecutive equal layers of the body of a function."""

    layers: tuple[Layer, ...]
    carried: Mapping[tuple[int, int], tuple[int, int]]
    """The operands of a layer, by operation and number, that are results of the layer before it: operation, number."""


class _Source(NamedTuple):
    """What an operand is, relative to the layer of its operation; equal in equal layers."""

    kind: str
    """`result` of this layer or the one before it, `argument`, or `outside`: of any operation before those."""
    first: int = 0
    second: int = 0
    third: int = 0


def find_layers(function: ir.Operation) -> LayerRun | Decline:
    """Return the run of equal layers with the most operations in the body of a function, or why there is none."""
    operations = [op.operation for op in function.regions[0].blocks[0].operations]
    repetition = _longest_period(operations)
    if repetition is None:
        return decline("no operations repeat often enough", layers=LEAST_LAYERS, operations=LEAST_OPERATIONS)
    start, period, count = repetition
    return _Wiring(operations, start, period, count).run()


def _longest_period(operations: Sequence[ir.Operation]) -> tuple[int, int, int] | None:
    """Return the start, the period, and the count of the longest repetition of operations."""
    if len(operations) < LEAST_LAYERS * LEAST_OPERATIONS:
        return None
    numbers: dict[Hashable, int] = {}
    kinds = np.array([numbers.setdefault(_signature(op), len(numbers)) for op in operations], np.int32)
    best: tuple[int, int, int, int] | None = None
    for period in range(LEAST_OPERATIONS, len(kinds) // LEAST_LAYERS + 1):
        equal = kinds[:-period] == kinds[period:]
        if np.count_nonzero(equal) < (LEAST_LAYERS - 1) * period:
            continue
        start, length = _longest_run(equal)
        count = length // period + 1
        if count >= LEAST_LAYERS and (best is None or (count - 1) * period > best[0]):
            best = (count - 1) * period, start, period, count
    return best and best[1:]


def _longest_run(equal: np.ndarray) -> tuple[int, int]:
    """Return the start and the length of the longest run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], equal.astype(np.int8), [0]))))
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return 0, 0
    longest = int(np.argmax(ends - starts))
    return int(starts[longest]), int(ends[longest] - starts[longest])


def reads(op: ir.Operation) -> list[ir.Value]:
    """Return the values from outside that an operation reads: its operands, then those that its bodies read."""
    return [*op.operands, *captured(op)] if len(op.regions) else list(op.operands)


def own_attributes(op: ir.Operation) -> dict[str, ir.Attribute]:
    """Return the attributes of an operation; in the text of an error without the names of its nodes."""
    attributes, names = attributes_of(op), ", ".join(names_of(op.location))
    text = attributes.get(TEXT)
    if names and isinstance(text, ir.StringAttr) and text.value.startswith(names):
        attributes[TEXT] = ir.StringAttr.get(text.value.removeprefix(names))
    return attributes


def set_read(op: ir.Operation, number: int, value: ir.Value) -> None:
    """Replace one of the values of `reads`."""
    if number < len(op.operands):
        op.operands[number] = value
    else:
        replace_inside(op, reads(op)[number], value)


def body_signature(op: ir.Operation) -> Hashable:
    """Return what is equal for operations whose bodies compute the same of the values that they read."""
    numbers: dict[ir.Value, Hashable] = {value: ("outside", i) for i, value in enumerate(captured(op))}

    def of_block(block: ir.Block) -> Hashable:
        for argument in block.arguments:
            numbers[argument] = len(numbers)
        operations = []
        for inner in (each.operation for each in block.operations):
            kinds = tuple(value.type for value in inner.results)
            operands = tuple(numbers[value] for value in inner.operands)
            nested = tuple(of_block(each) for region in inner.regions for each in region.blocks)
            operations.append((inner.name, tuple(own_attributes(inner).items()), kinds, operands, nested))
            for value in inner.results:
                numbers[value] = len(numbers)
        return tuple(value.type for value in block.arguments), tuple(operations)

    return tuple(of_block(block) for region in op.regions for block in region.blocks)


def _signature(op: ir.Operation) -> Hashable:
    """Return what equal operations of equal layers have in common, apart from operands and elements of constants."""
    attributes = own_attributes(op)
    if len(op.regions):
        return op.name, tuple(attributes.items()), tuple(value.type for value in op.results), body_signature(op)
    if op.name == CONSTANT and not _is_splat(attributes):
        attributes = {}
    return op.name, tuple(attributes.items()), tuple(value.type for value in op.results)


def _is_splat(attributes: Mapping[str, ir.Attribute]) -> bool:
    """Return whether the elements of a constant are one number, which rules look at."""
    value: Any = attributes.get("value")
    return value is not None and bool(getattr(value, "is_splat", True))


class _Wiring:
    """The operands of operations that repeat."""

    def __init__(self, operations: list[ir.Operation], start: int, period: int, count: int) -> None:
        self.operations, self.start, self.period, self.count = operations, start, period, count
        self.places: dict[ir.Value, tuple[int, int]] = {}
        """The operation and the number of each result."""
        for i, op in enumerate(operations):
            for j, value in enumerate(op.results):
                self.places[value] = i, j

    def run(self) -> LayerRun | Decline:
        wiring = [self._wiring(layer) for layer in range(self.count)]
        starts = [i for i in range(1, self.count) if wiring[i] != wiring[i - 1]]
        first, end = max(zip([0, *starts], [*starts, self.count], strict=True), key=lambda ends: ends[1] - ends[0])
        if end - first < LEAST_LAYERS:
            return decline("operations repeat, but not with equal operands", layers=end - first, least=LEAST_LAYERS)
        sources = wiring[first]
        numbers = range(first, end)
        problem = self._read_later(end)
        if problem is not None:
            return problem
        inputs = self._inputs(numbers, sources)
        constants = self._constants(numbers)
        outputs = self._outputs(numbers)
        if inputs is None or constants is None or outputs is None:
            what = "arguments" if inputs is None else "constants" if constants is None else "results"
            return decline(f"layers share some of the {what} that others have alone")
        if not (inputs[0] or constants[0]):
            return decline("layers differ neither in arguments nor in constants")
        rows = zip(numbers, inputs, constants, outputs, strict=True)
        carried = {
            (i, j): (source.second, source.third)
            for i, row in enumerate(sources) for j, source in enumerate(row) if source[:2] == ("result", 1)
        }  # fmt: skip
        return LayerRun(tuple(Layer(tuple(self._layer(n)), i, c, o) for n, i, c, o in rows), carried)

    def _layer(self, number: int) -> list[ir.Operation]:
        begin = self.start + number * self.period
        return self.operations[begin : begin + self.period]

    def _layer_of(self, place: int) -> int | None:
        number = (place - self.start) // self.period
        return number if 0 <= number < self.count else None

    def _wiring(self, layer: int) -> tuple[tuple[_Source, ...], ...]:
        return tuple(tuple(self._source(value, layer) for value in reads(op)) for op in self._layer(layer))

    def _source(self, value: ir.Value, layer: int) -> _Source:
        place = self.places.get(value)
        if place is None:
            return _Source("argument")
        of = self._layer_of(place[0])
        if of is None or layer - of > 1:
            return _Source("outside", *place)
        return _Source("result", layer - of, (place[0] - self.start) % self.period, place[1])

    def _read_later(self, end: int) -> Decline | None:
        """Return a decline if operations after the layers read results of others than the last one."""
        after = self.start + end * self.period
        for op in self.operations[after:]:
            if op.name == RETURN:
                continue
            for value in reads(op):
                place = self.places.get(value)
                if place is not None and self.start <= place[0] < after - self.period:
                    return decline("a value of a layer is read after the next one", reader=op.name)
        return None

    def _inputs(self, numbers: range, sources: Sequence[Sequence[_Source]]) -> list[tuple[int, ...]] | None:
        slots = [(i, j) for i, row in enumerate(sources) for j, each in enumerate(row) if each.kind == "argument"]
        rows = [
            [ir.BlockArgument(reads(layer[i])[j]).arg_number for i, j in slots] for layer in map(self._layer, numbers)
        ]
        groups = _own(rows)
        return groups and [tuple(row[group[0]] for group in groups[0]) for row in rows]

    def _constants(self, numbers: range) -> list[tuple[tuple[int, ...], ...]] | None:
        places = [i for i, op in enumerate(self._layer(numbers[0])) if op.name == CONSTANT]
        layers = [self._layer(number) for number in numbers]
        rows = [[tuple(attributes_of(layer[i]).items()) for i in places] for layer in layers]
        groups = _own(rows)
        return groups and [tuple(tuple(places[i] for i in group) for group in groups[0])] * len(rows)

    def _outputs(self, numbers: range) -> list[tuple[int, ...]] | None:
        """Return the results of the function that each layer computes; the last layer may compute others, too."""
        outputs: list[list[tuple[tuple[int, int], int]]] = [[] for _ in numbers]
        for position, value in enumerate(self.operations[-1].operands):
            place = self.places.get(value)
            of = None if place is None else self._layer_of(place[0])
            if place is not None and of is not None and of in numbers:
                outputs[of - numbers[0]].append((((place[0] - self.start) % self.period, place[1]), position))
        listed = [tuple(sorted(row)) for row in outputs]
        keys = [tuple(key for key, _ in row) for row in listed]
        if any(row != keys[0] for row in keys[:-1]):
            return None
        return [tuple(position for _, position in row) for row in listed]


def _own(rows: Sequence[Sequence[Hashable]]) -> tuple[list[list[int]]] | None:
    """Return groups of columns that are equal in each row, without those that are equal in all rows.

    Return None if columns are equal in some rows only, or if one row has in such a column what another one has.
    """
    groups: dict[tuple[Hashable, ...], list[int]] = {}
    for i in range(len(rows[0])):
        column = tuple(row[i] for row in rows)
        if any(each != column[0] for each in column):
            groups.setdefault(column, []).append(i)
    values = [each for column in groups for each in column]
    return ([*groups.values()],) if len(set(values)) == len(values) else None
