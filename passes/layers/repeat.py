"""Repetition of a layer that passes have changed, for equal layers that were removed."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import attributes_of, captured, replace_inside, replace_op
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import with_nested
from mirlo.dialects.relax.create import Constant
from mirlo.passes.graph.constants import emit_constant, emit_deferred_constant
from mirlo.passes.graph.unknown import Contents, DeferredElements, UndefinedConstantError, UnknownConstants
from mirlo.passes.layers.find import (
    CONSTANT,
    TEXT,
    body_signature,
    own_attributes,
    reads,
    set_read,
)
from mirlo.passes.layers.represent import RemovedLayers, return_values
from mirlo.passes.locations import names_of
from mirlo.passes.rules import Decline, decline
from mirlo.passes.session import Session

_Values = dict[ir.Value, ir.Value]
_Locations = dict[ir.Attribute, ir.Location]
"""Locations by others, as attributes: equal locations have different hashes."""
NONE, FIRST, SECOND, LATER = range(4)
"""What a value depends on: no compared layer, or the last one of those that it depends on."""


def repeat_layer(layers: RemovedLayers, unknown: UnknownConstants, session: Session) -> Decline | None:
    """Insert a copy of the second layer for each that was removed; decline if the first one became another."""
    pairs = _Pairs(layers, unknown)
    return pairs.compare() or _Copies(pairs, session).insert()


class _Pairs:
    """The values of the second layer, each with that of the first."""

    def __init__(self, layers: RemovedLayers, unknown: UnknownConstants) -> None:
        self.layers, self.unknown = layers, unknown
        self.block = layers.function.regions[0].blocks[0]
        *self.operations, self.last = [op.operation for op in self.block.operations]
        self.parts: dict[ir.Value, int] = {}
        """The part of the function that each value belongs to."""
        self.members: dict[int, list[ir.Operation]] = {part: [] for part in (NONE, FIRST, SECOND, LATER)}
        self.first: _Values = {}
        """The value of the first layer for that of the second."""
        self.second: _Values = {}
        """The opposite."""
        self.before: _Values = {}
        """What the first layer reads where the second one reads a value of the first."""
        self.numbers: dict[ir.Value, Hashable] = {}
        """What is equal for equal values of no layer."""

    @property
    def carried(self) -> set[ir.Value]:
        """Return the values of the second layer that the next one reads."""
        return {self.second[value] for value in self.before}

    def compare(self) -> Decline | None:
        """Pair the values of both layers; decline if they differ."""
        if len(self.block.arguments) != self.layers.arguments or len(self.last.operands) != len(self.layers.kept):
            return decline("passes changed the number of arguments or results of the function")
        self._divide()
        return self._pair_inputs() or self._pair_operations() or self._pair_outputs() or self._check_readers()

    def _divide(self) -> None:
        """Assign operations to parts: what depends on a layer, and on none after it, belongs to it."""
        part_of = dict(zip(self.layers.compared, (FIRST, SECOND, LATER), strict=True))
        for number, part in part_of.items():
            self.parts.update((self.block.arguments[i], part) for i in self.layers.inputs[number])
        for op in self.operations:
            part = max((self.parts.get(value, NONE) for value in reads(op)), default=NONE)
            if op.name == CONSTANT and op.opview.param in self.unknown:
                part = part_of[self.unknown.layers[op.opview.param][0]]
            self.members[part].append(op)
            self.parts.update((value, part) for value in op.results)

    def _pair_inputs(self) -> Decline | None:
        number = self.layers.compared[1]
        for other in (self.layers.compared[0], *self.layers.removed):
            for i, j in zip(self.layers.inputs[other], self.layers.inputs[number], strict=True):
                if self.block.arguments[i].type != self.block.arguments[j].type:
                    return decline("passes changed the type of an argument", argument=j)
        for i, j in zip(self.layers.inputs[self.layers.compared[0]], self.layers.inputs[number], strict=True):
            self._pair(self.block.arguments[i], self.block.arguments[j])
        return None

    def _pair_operations(self) -> Decline | None:
        first, second = self.members[FIRST], self.members[SECOND]
        if len(first) != len(second):
            return decline("passes made different operations of equal layers", first=len(first), second=len(second))
        for x, y in zip(first, second, strict=True):
            one, other = reads(x), reads(y)
            if self._signature(x) != self._signature(y) or len(one) != len(other):
                return decline("passes made different operations of equal layers", first=x.name, second=y.name)
            if not all(map(self._is_equal, one, other)):
                return decline("passes made operations of equal layers read different values", operation=y.name)
            for a, b in zip(x.results, y.results, strict=True):
                self._pair(a, b)
        return None

    def _pair_outputs(self) -> Decline | None:
        place = {position: i for i, position in enumerate(self.layers.kept)}
        number = self.layers.compared[1]
        pairs = zip(self.layers.outputs[self.layers.compared[0]], self.layers.outputs[number], strict=True)
        for x, y in pairs:
            value = self.last.operands[place[y]]
            if not self._is_equal(self.last.operands[place[x]], value):
                return decline("passes made layers return different values", result=y)
            if isinstance(value, ir.OpResult) and value.owner.name == CONSTANT:
                return decline("a layer returns a constant", result=y)
        return None

    def _check_readers(self) -> Decline | None:
        """Decline if what follows the second layer reads other values of layers than the next layer does."""
        own = {position for n in self.layers.compared[:2] for position in self.layers.outputs[n]}
        returned = [value for i, value in zip(self.layers.kept, self.last.operands, strict=True) if i not in own]
        carried = self.carried
        for value in (*(value for op in self.members[LATER] for value in reads(op)), *returned):
            part = self.parts.get(value, NONE)
            if part == FIRST or (part == SECOND and value not in carried):
                return decline("a value of a layer is read after the next one")
        return None

    def _pair(self, first: ir.Value, second: ir.Value) -> None:
        self.first[second], self.second[first] = first, second

    def _is_equal(self, first: ir.Value, second: ir.Value) -> bool:
        """Return whether operands of the first and the second layer are the same for each."""
        part = self.parts.get(second, NONE)
        if part == SECOND:
            return self.first.get(second) == first
        if part == FIRST:
            return self.parts.get(first, NONE) == NONE and self.before.setdefault(second, first) == first
        return part == NONE and (first == second or self._number(first) == self._number(second))

    def _number(self, value: ir.Value) -> Hashable:
        """Return what is equal for equal values that depend on no layer."""
        if not isinstance(value, ir.OpResult) or self.parts.get(value, NONE) != NONE:
            return value
        if value not in self.numbers:
            op = value.owner.operation
            operands = tuple(map(self._number, op.operands))
            key = op.name, tuple(attributes_of(op).items()), value.type, operands, value.result_number
            self.numbers[value] = value if len(op.regions) else key
        return self.numbers[value]

    def _signature(self, op: ir.Operation) -> Hashable:
        if op.name == CONSTANT and op.opview.param in self.unknown:
            return CONSTANT, op.results[0].type, self.unknown.key_of(op.opview.param)
        bodies = body_signature(op) if len(op.regions) else ()
        return op.name, tuple(own_attributes(op).items()), tuple(value.type for value in op.results), bodies


class _Copies:
    """Copies of the second layer, and the constants of all layers."""

    def __init__(self, pairs: _Pairs, session: Session) -> None:
        self.pairs, self.layers, self.unknown, self.session = pairs, pairs.layers, pairs.unknown, session
        self.members = pairs.members[SECOND]
        self.attributes = [attributes_of(op) for op in self.members]
        self.types = [[value.type for value in op.results] for op in self.members]
        self.emitted: dict[tuple[int, str], tuple[str | None, ir.Attribute | None]] = {}
        """The constants of layers that were computed from others."""

    def insert(self) -> Decline | None:
        """Insert a copy for each layer that was removed, and return its results again."""
        number, arguments = self.layers.compared[1], self.pairs.block.arguments
        returned = dict(zip(self.layers.kept, self.pairs.last.operands, strict=True))
        outputs = [returned[position] for position in self.layers.outputs[number]]
        at = self._place()
        own = [arguments[i] for i in self.layers.inputs[number]]
        current: _Values = {value: value for op in self.members for value in op.results}
        current |= {value: value for value in own}
        try:
            for n in self.layers.removed:
                copies: _Values = {value: arguments[i] for value, i in zip(own, self.layers.inputs[n], strict=True)}
                self._copy(n, copies, current, at)
                for value, position in zip(outputs, self.layers.outputs[n], strict=True):
                    returned[position] = self._value(value, copies, current)
                current = copies
            self._read_from(current, returned)
            self._relocate()
            for part in (FIRST, SECOND, LATER):
                for op in self.pairs.members[part]:
                    self._replace_unknown(op)
        except UndefinedConstantError as error:
            return decline("numpy does not define a constant that is computed from those of a layer", name=str(error))
        self._return(returned)
        return None

    def _place(self) -> ir.InsertionPoint:
        """Return the place of the copies, after the second layer and before what depends on later ones."""
        later, behind = set(self.pairs.members[LATER]), self.members[-1]
        for op in self.pairs.operations[: self.pairs.operations.index(behind)]:
            if op in later:
                op.move_after(behind)
                behind = op
        return ir.InsertionPoint.after(self.members[-1])

    def _value(self, value: ir.Value, copies: _Values, current: _Values) -> ir.Value:
        """Return what a value of the second layer is in a copy of it; `current` are the values of the copy before."""
        part = self.pairs.parts.get(value, NONE)
        if part == SECOND:
            return copies[value]
        return current[self.pairs.second[value]] if part == FIRST else value

    def _locations(self, n: int) -> _Locations:
        """Return the locations in and around a copy for those in and around the second layer."""
        before, number, behind = self.layers.compared
        pairs = (before, n - 1), (behind, n + 1), (number, n)
        known = self.layers.locations
        return {old.attr: new for a, b in pairs for old, new in zip(known[a], known[b], strict=True)}

    def _relocate(self) -> None:
        """Correct the locations of operations of two layers: another one follows the second one again."""
        number, behind = self.layers.compared[1:]
        known = self.layers.locations
        for part, old, new in (SECOND, behind, self.layers.removed[0]), (LATER, number, self.layers.removed[-1]):
            locations = {a.attr: b for a, b in zip(known[old], known[new], strict=True)}
            for op in self.pairs.members[part]:
                _relocate(op, locations)

    def _copy(self, n: int, copies: _Values, current: _Values, at: ir.InsertionPoint) -> None:
        locations = self._locations(n)
        for op, attributes, types in zip(self.members, self.attributes, self.types, strict=True):
            location = _moved(op.location, locations)
            if op.name == CONSTANT and op.opview.param in self.unknown:
                with at, location:
                    copies[op.results[0]] = self._constant(op.opview.param, n, op.results[0].type)
                continue
            operands = [self._value(value, copies, current) for value in reads(op)]
            if len(op.regions):
                copy = op.clone(ip=at).operation
                for number, value in enumerate(operands):
                    set_read(copy, number, value)
            else:
                copy = ir.Operation.create(op.name, types, operands, attributes, loc=op.location, ip=at)
            if len(op.regions) or TEXT in attributes:
                _relocate(copy, locations)
            else:
                copy.location = location
            copies.update(zip(op.results, copy.results, strict=True))

    def _read_from(self, current: _Values, returned: dict[int, ir.Value]) -> None:
        """Make what follows the second layer read from the last copy."""
        carried = self.pairs.carried
        for op in self.pairs.members[LATER]:
            for i, value in enumerate(op.operands):
                if value in carried:
                    op.operands[i] = current[value]
            for value in list(captured(op)) if len(op.regions) else ():
                if value in carried:
                    replace_inside(op, value, current[value])
        own = {position for n in self.layers.compared[:2] for position in self.layers.outputs[n]}
        for position in set(self.layers.kept) - own:
            if returned[position] in carried:
                returned[position] = current[returned[position]]

    def _return(self, returned: dict[int, ir.Value]) -> None:
        function, count = self.layers.function, len(returned)
        attributes = None
        if self.layers.results is not None:
            attributes = list(self.layers.results)
            changed = list(ir.ArrayAttr(function.attributes["res_attrs"]))
            for position, each in zip(self.layers.kept, changed, strict=True):
                attributes[position] = each
        return_values(function, [returned[i] for i in range(count)], attributes)

    def _replace_unknown(self, op: ir.Operation) -> None:
        """Replace a constant of a layer that is there by that of this layer."""
        if op.name == CONSTANT and op.opview.param in self.unknown:
            name = op.opview.param
            with ir.InsertionPoint(op), op.location:
                replace_op(op, [self._constant(name, self.unknown.layers[name][0], op.results[0].type)])

    def _constant(self, name: str, n: int, type: ir.Type) -> ir.Value:
        """Emit the constant of a layer for one that was unknown."""
        kind = TensorType.from_mlir(type)
        assert kind is not None
        known = self.emitted.get((n, name))
        if name not in self.unknown.derived:
            constant = self.unknown.leaf(name, n)
            known = constant.param, constant.value
        if known is not None:
            result: ir.Value = Constant.make(param=known[0], value=known[1], result_types=[kind])
            return result
        elements = self.unknown.elements(name, n, self.session.params)
        if isinstance(elements, DeferredElements):
            base = self._name(name, n)
            result = emit_deferred_constant(elements.make, kind, self.session, base, fill=elements.fill)
        else:
            result = emit_constant(elements, kind, self.session, self._name(name, n))
        self.emitted[n, name] = result.owner.opview.param, result.owner.opview.value
        return result

    def _name(self, constant: Contents, n: int) -> str:
        """Return `weight.permute` for a constant computed from `weight`."""
        if not isinstance(constant, str):
            return "constant"
        if constant not in self.unknown:
            return constant
        derived = self.unknown.derived.get(constant)
        if derived is None:
            return self.unknown.leaf(constant, n).param or "constant"
        sizes = [prod(kind.static_shape) for kind in derived.kinds]
        return f"{self._name(derived.operands[sizes.index(max(sizes))], n)}.{derived.name}"


def _relocate(op: ir.Operation, locations: _Locations) -> None:
    """Set the locations of an operation, and of those inside of it, to those in another layer."""
    for each in with_nested(op):
        moved, own = _moved(each.location, locations), own_attributes(each)
        if moved == each.location:
            continue
        each.location = moved
        if own.get(TEXT) != attributes_of(each).get(TEXT):
            text = ", ".join(names_of(moved)) + ir.StringAttr(own[TEXT]).value
            each.attributes[TEXT] = ir.StringAttr.get(text)


def _moved(location: ir.Location, locations: _Locations) -> ir.Location:
    """Return the location in another layer for one in the second layer."""
    moved = locations.get(location.attr)
    if moved is not None or not isinstance(location, ir.FusedLoc):
        return location if moved is None else moved
    return ir.Location.fused([_moved(part, locations) for part in location.locations])
