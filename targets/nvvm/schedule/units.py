"""Matrix units: a table of operand formats, and the format of a product's operands.

Products are 16 x 8 elements by 32 bytes of K in any format: 16 elements of two bytes, 8 of four, 32 of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.core.value import is_constant
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import ProductInput
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.contraction.staging import ACCESS as ACCESS
from mirlo.targets.nvvm.options import Options

ROWS, COLUMNS, DEPTH_BYTES = 16, 8, 32
"""Extents of one product."""
EDGE = 8
"""Rows of the 8 x 16-byte squares that `ldmatrix` reads."""


@dataclass(frozen=True)
class Format:
    """An operand format of a matrix unit."""

    name: str
    """Its name in PTX."""
    bytes: int
    sums: str
    """Element type of the accumulators."""
    family: str
    """The feature a chip must have; `mixed` formats of one family can be multiplied with each other."""
    mixed: bool = False
    """Whether the two operands may have different formats of the family."""
    like: str | None = None
    """The element type that its bytes encode, where the IR only has bytes."""

    @property
    def depth(self) -> int:
        """Return the K elements of one product."""
        return DEPTH_BYTES // self.bytes

    @property
    def vector(self) -> int:
        """Return the elements that a thread moves at once."""
        return ACCESS // self.bytes

    @property
    def pair(self) -> int:
        """Return the adjacent elements that share a register."""
        return 4 // self.bytes

    def padding(self, along_k: bool) -> int:
        """Return the elements between lines, or k-steps, that avoid bank conflicts."""
        # 4-byte elements are read singly across K: 8 of one k-step and of the next three must be in different banks.
        return EDGE if self.bytes == 4 and not along_k else self.vector

    def fits(self, other: Format) -> bool:
        """Return whether it can be multiplied with another format."""
        return self == other or (self.mixed and self.family == other.family)


F16 = Format("f16", 2, "f32", "f16")
BF16 = Format("bf16", 2, "f32", "bf16")
TF32 = Format("tf32", 4, "f32", "tf32")
S8, U8 = (Format(name, 1, "i32", "i8", mixed=True) for name in ("s8", "u8"))
FLOATS8 = (
    Format("e4m3", 1, "f32", "f8", mixed=True, like="f8e4m3fn"),
    Format("e5m2", 1, "f32", "f8", mixed=True, like="f8e5m2"),
)
_STORED = {"f16": F16, "bf16": BF16}
_EXTENDED = {"arith.extsi": S8, "arith.extui": U8}


def format_of(factor: ProductInput, element: ir.Type, options: Options) -> Format | Decline:
    """Return the format of an operand, by the operations of the body on its elements before the product."""
    result = _format(factor, element)
    if isinstance(result, Decline):
        return result
    if result is TF32 and not options.tf32:
        return decline("factors of f32 are not to be rounded (option tf32 of target nvvm)")
    if result.family not in options.chip.tensor_cores:
        return decline("the chip's matrix units do not take the factors", type=result.name, chip=options.chip.name)
    return result


def _format(factor: ProductInput, element: ir.Type) -> Format | Decline:
    kind, names = str(element), [op.name for op in factor.body_ops]
    if kind in _STORED:
        others = [name for name in names if name != "arith.extf"]
        return decline("the factors are computed from their elements") if others else _STORED[kind]
    if kind == "f32":
        return decline("the factors are computed from their elements") if names else TF32
    if kind == "i8" and len(names) == 1 and names[0] in _EXTENDED:
        return _EXTENDED[names[0]]
    if kind == "i8" and str(factor.result.type) == "f32":
        return _float8(factor)
    return decline("matrix units multiply f16, bf16, int8, 8-bit floats and, on request, f32", type=kind)


def _float8(factor: ProductInput) -> Format | Decline:
    """Return the format that bytes are decoded from, by evaluating the body on each of them."""
    result = _decoded(factor)
    for form in FLOATS8:
        assert form.like is not None
        table = np.arange(256, dtype=np.uint8).view(dtype(form.like).to_numpy()).astype(np.float32)
        if result is not None and np.array_equal(result, table, equal_nan=True):
            return form
    return decline("the factors are computed from bytes, not as e4m3 or e5m2")


_KINDS = {"i1": np.bool_, "i8": np.uint8, "i16": np.int16, "i32": np.int32, "f16": np.float16, "f32": np.float32}
_COMPARE = {0: np.equal, 1: np.not_equal, 2: np.less, 3: np.less_equal, 4: np.greater, 5: np.greater_equal}
_BINARY = {
    "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or, "arith.shli": np.left_shift, "arith.addi": np.add,
    "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.mulf": np.multiply, "arith.addf": np.add,
}  # fmt: skip


def _decoded(factor: ProductInput) -> np.ndarray | None:
    """Return the body's value for each byte; None if it contains unknown operations."""
    values: dict[ir.Value, np.ndarray] = {factor.argument: np.arange(256, dtype=np.uint8)}
    with np.errstate(all="ignore"):
        for op in factor.body_ops:
            kind = _KINDS.get(str(op.results[0].type))
            evaluated = [_operand(value, values) for value in op.operands]
            operands = [operand for operand in evaluated if operand is not None]
            if kind is None or len(operands) < len(evaluated):
                return None
            result = _computed(op, operands, np.dtype(kind))
            if result is None:
                return None
            values[op.results[0]] = result
    return values.get(factor.result)


def _operand(value: ir.Value, values: dict[ir.Value, np.ndarray]) -> np.ndarray | None:
    if value in values:
        return values[value]
    kind = _KINDS.get(str(value.type))
    if kind is None or not is_constant(value):
        return None
    return np.full(256, value.owner.attributes["value"].value).astype(kind)


def _computed(op: ir.Operation, operands: Sequence[np.ndarray], kind: np.dtype) -> np.ndarray | None:
    if op.name == "arith.constant":
        return np.full(256, op.attributes["value"].value).astype(kind)
    if op.name in _BINARY:
        return np.asarray(_BINARY[op.name](*operands).astype(kind))
    if op.name in ("arith.extui", "arith.extf", "arith.trunci"):
        return np.asarray(operands[0].astype(kind))
    if op.name == "arith.bitcast":
        return np.asarray(operands[0].view(kind))
    if op.name == "arith.negf":
        return np.asarray(-operands[0])
    if op.name == "arith.select":
        return np.where(*operands).astype(kind)
    if op.name == "arith.cmpi":
        compare = _COMPARE.get(op.attributes["predicate"].value)
        return compare(*operands) if compare is not None else None
    return None
