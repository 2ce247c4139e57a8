"""The pass `fold-constant`: constant folding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.budget import FOLDED_BYTES, FOLDINGS
from mirlo.dialects.core.dims import UndecidedDim
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.surgery import blocks, erase_dead, replace_op
from mirlo.dialects.core.traits import Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.constant import Constant
from mirlo.dialects.relax.meanings import widened
from mirlo.passes.graph.constants import constant_name, constant_value, emit_constant, is_constant
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


ConstantKey = tuple[str, tuple[tuple[str, ir.Attribute], ...], tuple[ir.Attribute | str, ...], tuple[ir.Type, ...]]
"""What is equal for operations on constants that compute the same."""


class _FoldedConstant(NamedTuple):
    """The value of a constant that replaced a result: the name of a parameter, or an attribute."""

    param: str | None
    value: ir.Attribute | None


FOLDED_GROWTH = 1 << 20
"""Bytes by which a result may exceed its operands, by default."""
WORTH_FLOPS = 8
"""Operations for each element from which a large result is stored: loading one from memory takes as long."""
WORTH_GROWTH = 16
"""How many times more bytes such a result may take."""


@register_pass
@dataclass(frozen=True)
class FoldConstant(Pass):
    """Evaluate operators whose operands are all constants, with numpy.

    A result may exceed the size of its operands by at most `grow` bytes: repeated data is cheaper to compute than to
    store. One that takes many operations for each element, with those that it is computed from, may by 16 times that.
    Constants that only convolutions read are converted whatever their size.
    """

    name = "fold-constant"
    contained = True
    trusted = True
    anchor = "func.func"
    grow: int = option(FOLDED_GROWTH, "bytes by which a result may exceed its operands")

    def run(self, op: ir.OpView, session: Session) -> None:
        all_blocks = blocks(op)
        before = _params(all_blocks)
        folder = _Folder(session, self.grow, FOLDED_BYTES + FOLDINGS * _constant_bytes(all_blocks))
        for block in all_blocks:
            for operation in [o.operation for o in block.operations]:
                folder.fold(operation)
        for block in all_blocks:
            erase_dead(block, _is_constant)
        # Intermediate constants are not kept.
        for name in folder.made - _params(all_blocks) - before:
            session.params.discard(name)


def _is_constant(op: ir.Operation) -> bool:
    return bool(op.name == "relax.constant")


def _params(blocks_: list[ir.Block]) -> set[str]:
    """Return the parameters that constants in these blocks name."""
    constants = [op.operation.opview for block in blocks_ for op in block.operations if _is_constant(op.operation)]
    return {op.param for op in constants if op.param is not None}


def _constant_bytes(in_blocks: list[ir.Block]) -> int:
    constants = [op.operation for block in in_blocks for op in block.operations if _is_constant(op.operation)]
    kinds = [TensorType.from_mlir(op.results[0].type) for op in constants]
    return sum(kind.bytes for kind in kinds if kind is not None and kind.is_static)


@dataclass
class _Folder:
    session: Session
    grow: int
    left: int
    """Bytes that may yet be made."""
    made: set[str] = field(default_factory=set)
    """Added parameters."""
    known: dict[ConstantKey, list[_FoldedConstant]] = field(default_factory=dict)
    """Attributes of the constants that replaced an operation, by its key: shared weights are folded once."""
    large: dict[ir.Value, int] = field(default_factory=dict)
    """Results that are computed in each call because they are large, with the operations for each of their elements."""

    def fold(self, op: ir.Operation) -> None:
        """Replace an operation by constants if its operands are constants, or large results that are worth it."""
        if getattr(type(op.opview), "meaning", None) is None or not op.opview.PURE:
            return
        if not any(v in self.large for v in op.operands):
            self._fold(op, self.grow)
            return
        if not all(is_constant(v) or v in self.large for v in op.operands):
            return
        flops = self._flops(op)
        if flops < WORTH_FLOPS:
            self.large.update(dict.fromkeys(op.results, flops))
            return
        self._fold_with_operands(op)

    def _flops(self, op: ir.Operation) -> int:
        return class_of(op.opview).FLOPS_PER_ELEMENT + sum(self.large.get(v, 0) for v in dict.fromkeys(op.operands))

    def _fold_with_operands(self, op: ir.Operation) -> None:
        for operand in dict.fromkeys(op.operands):
            if operand in self.large:
                self._fold_with_operands(operand.owner.operation)
        self._fold(op, self.grow * WORTH_GROWTH)

    def _fold(self, op: ir.Operation, grow: int) -> None:
        if not all(is_constant(v) for v in op.operands):
            return
        if not op.opview.folds(*op.opview.operand_types(), **op.opview.attribute_values()):
            return
        kinds = [kind for r in op.results if (kind := TensorType.from_mlir(r.type)) is not None and kind.is_static]
        if len(kinds) < len(op.results):
            return
        if self._grows(op, kinds, grow):
            if grow == self.grow:
                self.large.update(dict.fromkeys(op.results, self._flops(op)))
            return
        key = _key(op)
        with ir.InsertionPoint(op), op.location:
            if key in self.known:
                values = [
                    Constant.make(param=known.param, value=known.value, result_types=[kind])
                    for known, kind in zip(self.known[key], kinds, strict=True)
                ]
            else:
                values = self._evaluate(op, kinds)
        if not values:
            return
        self.known[key] = [_FoldedConstant(v.owner.opview.param, v.owner.opview.value) for v in values]
        self.made |= {known.param for known in self.known[key] if known.param is not None}
        for result in op.results:
            self.large.pop(result, None)
        replace_op(op, values)

    def _grows(self, op: ir.Operation, kinds: Sequence[TensorType], grow: int) -> bool:
        operands = dict.fromkeys(op.operands)  # one that is read twice is there once
        read = sum(kind.bytes for v in operands if (kind := TensorType.from_mlir(v.type)) is not None)
        size = sum(kind.bytes for kind in kinds)
        if size > self.left or (size > read + grow and not _is_for_convolutions(op)):
            return True
        self.left -= size
        return False

    def _evaluate(self, op: ir.Operation, kinds: Sequence[TensorType]) -> list[ir.Value]:
        """Return constants of the results, or nothing if they cannot be evaluated."""
        arrays = [constant_value(v, self.session) for v in op.operands]
        operands = [array for array in arrays if array is not None]
        if len(operands) < len(arrays):
            return []
        view = op.opview
        meaning = class_of(view).meaning
        assert meaning is not None  # `fold` leaves operations without one alone
        layout, widens = class_of(view)._operand_layout, Trait.ELEMENTWISE in view.TRAITS and view.IN_F32
        operands = [widened(array) for array in operands] if widens else operands
        try:
            with np.errstate(all="ignore"):
                result = meaning(
                    *(layout.pick(field, op, operands) for field in layout.fields), **view.attribute_values()
                )
        except (TypeError, UndecidedDim):  # numpy has no such operator for this element type, or for symbolic dims
            return []
        if result is None:
            return []
        results = result if isinstance(result, tuple) else (result,)
        return [
            emit_constant(np.asarray(array, kind.dtype.to_numpy()), kind, self.session, _name(op))
            for array, kind in zip(results, kinds, strict=True)
        ]


def _is_for_convolutions(op: ir.Operation) -> bool:
    """Return whether an operation converts what only convolutions read, perhaps moved.

    They read a weight for many pixels, and in an order, or transformed, that is computed from constants beforehand.
    """
    if op.name != "relax.cast":
        return False
    values, readers = list(op.results), 0
    while values:
        for use in values.pop().uses:
            user = use.owner
            if class_of(user).PRECISION is Precision.MOVES:
                values += user.operation.results
            elif {Trait.CONTRACTION, Trait.DATA_LAYOUT} <= set(class_of(user).TRAITS):
                readers += 1
            else:
                return False
    return readers > 0


def _key(op: ir.Operation) -> ConstantKey:
    """Return a key that is equal for operations that compute the same."""
    attributes = tuple((op.attributes[i].name, op.attributes[i].attr) for i in range(len(op.attributes)))
    constants = [v.owner.opview for v in op.operands]
    operands = tuple(c.param if c.param is not None else c.value for c in constants)
    return op.name, attributes, operands, tuple(r.type for r in op.results)


def _name(op: ir.Operation) -> str:
    """Return `weight.permute` for a value computed from `weight`; it is made unique later."""
    largest = max(op.operands, key=lambda v: int(np.prod(v.type.shape)), default=None)
    short = op.name.split(".")[-1]
    return f"{constant_name(largest)}.{short}" if largest is not None else short
