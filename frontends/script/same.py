"""Structural equality of functions: the same operations on the same values, in order where that matters."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import REQUIRED, Attribute

_PURE_DIALECTS = ("arith", "math", "affine", "index")
_PURE = frozenset({"tensor.extract", "tensor.empty"})
_IMPURE = frozenset({"relax.call_packed", "tir.for", "tir.call_extern", "tir.yield"})
_MEMORY = frozenset({"memref.alloca", "memref.alloc"})
_VIEWS = frozenset({"memref.view", "memref.reinterpret_cast", "memref.subview", "memref.cast"})
_DEFAULTS = {"fastmath": "#arith.fastmath<none>", "overflowFlags": "#arith.overflow<none>"}
_LAYOUT = ("operandSegmentSizes", "resultSegmentSizes")
BlockKey = tuple[tuple[str, ...], tuple[int, ...]]
"""The types of arguments, and the numbers of what is listed in order."""


def same_ir(left: ir.OpView | ir.Operation | ir.Module, right: ir.OpView | ir.Operation | ir.Module) -> bool:
    """Return whether two operations, functions or modules are equal up to the order of pure operations."""
    keys: dict[tuple[object, ...], int] = {}
    return _Fingerprint(keys).of(left.operation) == _Fingerprint(keys).of(right.operation)


class _Fingerprint:
    """Value numbering in which equal computations get equal numbers; operations with effects are listed in order."""

    def __init__(self, keys: dict[tuple[object, ...], int]):
        self.keys = keys
        self.values: dict[ir.Value, int] = {}
        self.memory = 0
        self.version = 0
        self.depth = 0

    def of(self, op: ir.Operation | ir.OpView) -> int:
        return self._key(op, effects=True)

    def _number(self, key: tuple[object, ...]) -> int:
        return self.keys.setdefault(key, len(self.keys))

    def _value(self, value: ir.Value) -> int:
        result = self.values.get(value)
        if result is None:
            # Memory is numbered at its first use, wherever it is allocated.
            self.memory += 1
            result = self.values[value] = self._number(("memory", self.memory, str(value.type)))
        return result

    def _key(self, op: ir.Operation | ir.OpView, effects: bool) -> int:
        operands = tuple(self._value(v) for v in op.operands)
        regions = tuple(self._region(region) for region in op.regions)
        if op.name == "scf.if" and len(regions) == 2 and regions[1] and not any(regions[1][0][1][:-1]):
            regions = (regions[0], ())
        types = tuple(str(r.type) for r in op.results)
        return self._number((op.name, operands, _attributes(op), types, regions, self.version if effects else -1))

    def _region(self, region: ir.Region) -> tuple[BlockKey, ...]:
        return tuple(self._block(block) for block in region.blocks)

    def _block(self, block: ir.Block) -> BlockKey:
        self.depth += 1
        types = []
        for i, argument in enumerate(block.arguments):
            types.append(str(argument.type))
            self.values[argument] = self._number(("argument", self.depth, i, str(argument.type)))
        listed: list[int] = []
        for wrapped in block.operations:
            op = wrapped.operation
            if op.name in _MEMORY:
                continue
            is_pure = _is_pure(op)
            reads = op.name == "memref.load"
            if not is_pure and not reads:
                self.version += 1
            key = self._key(op, effects=not is_pure)
            for i, result in enumerate(op.results):
                self.values[result] = self._number(("result", key, i))
            if not is_pure and not reads:
                self.version += 1
                listed.append(key)
        self.depth -= 1
        return tuple(types), tuple(listed)


def _is_pure(op: ir.Operation | ir.OpView) -> bool:
    if op.name in _PURE or op.name in _VIEWS:
        return True
    if op.name in _IMPURE or op.name.startswith("func."):
        return False
    if op.name.startswith("tir."):
        return op.name != "tir.block" or len(op.results) > 0
    return op.name.split(".")[0] in (*_PURE_DIALECTS, "relax")


def _attributes(op: ir.Operation | ir.OpView) -> tuple[tuple[str, str], ...]:
    """Return names and texts of the attributes without defaults."""
    declared = getattr(type(op.opview), "_attributes", {}) if op.name.startswith(("relax.", "tir.")) else {}
    attributes = []
    for i in range(len(op.attributes)):
        named = op.attributes[i]
        text = str(named.attr)
        known = declared.get(named.name)
        if known is not None and _has_default(known, named.attr):
            continue
        if _DEFAULTS.get(named.name) != text and named.name not in _LAYOUT:
            attributes.append((named.name, text))
    return tuple(sorted(attributes))


def _has_default(declared: Attribute, attribute: ir.Attribute) -> bool:
    """Return whether an attribute has its default value."""
    if declared.default is None or declared.default is REQUIRED or not declared.accepts(attribute):
        return False
    return bool(declared.decode(attribute) == declared.default)
