"""The pass `to-mixed-precision`: low-precision operands with f32 accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import graph_operations
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.core.op import DialectOp, class_of
from mirlo.dialects.core.surgery import blocks, erase_dead
from mirlo.dialects.core.traits import Precision
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.attention import AttentionBase
from mirlo.passes.graph.constants import constant_value, emit_constant, is_constant
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.graph.rewrite import defining, kind_of
from mirlo.passes.locations import names_of
from mirlo.passes.node_keys import NODE, check_nodes
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.session import Approximation, RowType
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

F32 = DTYPES["f32"]
LOW_PRECISION_TYPES = ("bf16", "f16")
ALL, CONSTANTS, ROWS = "all", "constants", "rows"
"""Operands of products that are narrow."""
EXPECTED_ERRORS = {"bf16": "2^-6", "f16": "2^-9"}
"""What tests bound the difference from f32 by, for a network of convolutions, products, a norm and a softmax."""
LOWEST = {"bf16": -(2.0**127) * (2 - 2.0**-7), "f16": -65504.0}
"""The lowest finite value of each type."""


@register_pass
@dataclass(frozen=True)
class ToMixedPrecision(Pass):
    """Compute products of f32 values in bf16 or f16 with f32 accumulators; keep sensitive operators in f32.

    Matrix products, convolutions and attention read low-precision operands. Their constants are stored in low
    precision, in half of the memory, once `fold-constant` has run. Elementwise operators and those that move
    elements follow their operands. Inputs and outputs keep their types. Operators named in `keep` stay in f32, such
    as `relax.conv`, or `node:/head/MatMul` for one node of the model, as do all that reduce or magnify errors: an
    operator's class declares its `PRECISION`. A constant beyond the range of the low-precision type, such as a
    mask's -1e9 in f16, keeps its users in f32. With `operands=constants` only constants are in low precision: products
    widen them where they read them, and everything that is computed stays in f32, for machines that multiply no
    elements of the type faster. With `max-rows` constants that static sizes multiply with more rows stay in f32: to
    widen them takes longer than to read them. With `operands=rows` only products change whose weights the model stores
    in the type.
    """

    name = "to-mixed-precision"
    contained = True
    anchor = "func.func"
    dtype: str = option("bf16", "the narrow type: bf16 or f16")
    operands: str = option(ALL, "what products read in the narrow type: all, constants, or rows of narrow weights")
    max_rows: int = option(0, "with operands=constants, most rows that narrow constants are multiplied with; 0: any")
    keep: tuple[str, ...] = option((), "operators or nodes that stay in f32: relax.conv, node:/head/MatMul")

    def run(self, op: ir.OpView, session: Session) -> None:
        if self.dtype not in LOW_PRECISION_TYPES:
            raise PassError(f"dtype must be {' or '.join(LOW_PRECISION_TYPES)}, got '{self.dtype}'")
        if self.operands not in CONVERTERS:
            raise PassError(f"operands must be one of {', '.join(CONVERTERS)}; got '{self.operands}'")
        if "tir.prim_func" in op.operation.attributes or not len(op.operation.regions[0].blocks):
            return
        operators = graph_operations()
        for name in self.keep:
            if not name.startswith(NODE) and name not in operators:
                raise PassError(f"keep: '{name}' is neither an operator nor 'node:NAME'{nearest(name, operators)}")
        check_nodes(self.keep, "keep", op, session)
        all_blocks = blocks(op)
        converter = CONVERTERS[self.operands](DTYPES[self.dtype], frozenset(self.keep), session, self.max_rows)
        for block in all_blocks:
            for operation in [o.operation for o in block.operations]:
                converter.convert(operation)
        for block in reversed(all_blocks):
            erase_dead(block, is_pure_relax)
        if not converter.has_changed:
            return
        narrow = {ALL: "operands", CONSTANTS: "weights", ROWS: "rows"}[self.operands]
        note = Approximation(
            self.name,
            f"{self.dtype} {narrow} of products: expect up to {EXPECTED_ERRORS[self.dtype]} of the largest result",
        )
        if note not in session.notes:
            session.notes += [note, RowType(self.dtype)] if self.operands == ROWS else [note]


@dataclass
class _PrecisionVersions:
    """An originally f32 value, with its versions in other types."""

    wide: ir.Value | None
    narrow: ir.Value | None
    is_narrow: bool
    """Whether users should read the low-precision version."""
    is_shared: bool = False
    """Whether several operations read it: then it is in memory, where it should be low precision."""
    stored: ir.Value | None = None
    """The low-precision version, widened to f32."""


class _Converter:
    """Converter of operations, one by one, that tracks both versions of each value."""

    def __init__(self, dtype: DType, keep: frozenset[str], session: Session, max_rows: int = 0):
        self.dtype = dtype
        self.keep = keep
        self.session = session
        self.max_rows = max_rows
        self.known: dict[ir.Value, _PrecisionVersions] = {}
        self.has_changed = True
        """Whether results may have changed."""

    def convert(self, op: ir.Operation) -> None:
        """Convert one operation according to the versions of its operands."""
        behaviour = _precision_of(op)
        floats = [value for value in op.operands if _is_f32(value)]
        if self._is_kept(op) or not floats or any(_is_other_float(value) for value in op.operands):
            self._stay(op)
        elif behaviour is Precision.WIDE_RESULT:
            self._sum_wide(op)
        elif behaviour is Precision.NARROW:
            self._narrow(op)
        elif behaviour is Precision.STORED and is_constant(floats[0]) and self._fits(floats[0]):
            self._move(op)
        elif behaviour is Precision.MOVES:
            if any(self._prefers_narrow(v) for v in floats) and all(self._may_be_narrow(v) for v in floats):
                self._move(op)
            else:
                self._stay(op)
        elif behaviour is Precision.REGISTERS and any(self._prefers_narrow(value) for value in floats):
            self._compute(op, all(not is_constant(value) or self._fits(value) for value in floats))
        else:
            self._stay(op)

    def _is_kept(self, op: ir.Operation) -> bool:
        if not self.keep:
            return False
        return op.name in self.keep or any(NODE + name in self.keep for name in names_of(op.location))

    def _sum_wide(self, op: ir.Operation) -> None:
        view = op.opview
        if view.out_dtype is not None:
            self._stay(op)
            return
        values = [self._narrowed(value) if i < 2 else self._wide(value) for i, value in enumerate(op.operands)]
        results = self._remake(op, values, out_dtype=F32)
        self._remember(op, [_PrecisionVersions(value, None, True) for value in results])

    def _narrow(self, op: ir.Operation) -> None:
        mask = op.opview.mask if isinstance(op.opview, AttentionBase) else None
        values = [self._bounded(v) if mask is not None and v == mask else v for v in op.operands]
        results = self._remake(op, [self._narrowed(value) for value in values])
        self._remember(op, [_PrecisionVersions(None, value, True) for value in results])

    def _move(self, op: ir.Operation) -> None:
        results = self._remake(op, [self._narrowed(value) for value in op.operands])
        self._remember(op, [_PrecisionVersions(None, value, True) for value in results])

    def _compute(self, op: ir.Operation, is_narrow: bool) -> None:
        for i, value in enumerate(op.operands):
            versions = self.known.get(value)
            # A value with a single user is fused with it, and never rounded.
            is_stored = versions is not None and versions.is_narrow and versions.is_shared
            op.operands[i] = self._widened(value) if is_stored else self._wide(value)
        self._remember(op, [_PrecisionVersions(result, None, is_narrow) for result in op.results])

    def _stay(self, op: ir.Operation) -> None:
        for i, value in enumerate(op.operands):
            versions = self.known.get(value)
            is_stored = versions is not None and versions.is_narrow and isinstance(op.opview, DialectOp)
            op.operands[i] = self._widened(value) if is_stored else self._wide(value)

    def _remake(self, op: ir.Operation, values: Sequence[ir.Value], **changed: DType) -> list[ir.Value]:
        """Rebuild an operation with other operands and attributes; return its results."""
        view = op.opview
        cls = class_of(op)
        layout = cls._operand_layout
        operands = [layout.pick(field, op, list(values)) for field in layout.fields]
        with ir.InsertionPoint(op), op.location:
            result = cls.build(*operands, **{**view.attribute_values(), **changed})
        return list(result.operation.results)

    def _remember(self, op: ir.Operation, versions: Sequence[_PrecisionVersions]) -> None:
        for old, version in zip(op.results, versions, strict=True):
            if not _is_f32(old):
                if version.narrow is not None:
                    old.replace_all_uses_with(version.narrow)
                continue
            version.is_shared = len({use.owner for use in old.uses}) > 1
            self.known[old] = version

    def _prefers_narrow(self, value: ir.Value) -> bool:
        return value in self.known and self.known[value].is_narrow

    def _may_be_narrow(self, value: ir.Value) -> bool:
        return self._prefers_narrow(value) or (is_constant(value) and self._fits(value))

    def _fits(self, constant: ir.Value) -> bool:
        """Return whether no element of a constant overflows to infinity."""
        array = constant_value(constant, self.session)
        if array is None or not array.size:
            return True
        with np.errstate(over="ignore"):
            extremes = np.array([array.min(), array.max()])
            return bool((np.isfinite(extremes.astype(self.dtype.to_numpy())) == np.isfinite(extremes)).all())

    def _wide(self, value: ir.Value) -> ir.Value:
        """Return the most exact f32 version."""
        versions = self.known.get(value)
        if versions is None:
            return value
        if versions.wide is None:
            assert versions.narrow is not None
            versions.wide = _cast(versions.narrow, F32)
        return versions.wide

    def _narrowed(self, value: ir.Value) -> ir.Value:
        """Return the low-precision version; types other than f32 stay."""
        if not _is_f32(value):
            return value
        versions = self.known.setdefault(value, _PrecisionVersions(value, None, False))
        if versions.narrow is None:
            assert versions.wide is not None
            versions.narrow = _cast(versions.wide, self.dtype)
        return versions.narrow

    def _widened(self, value: ir.Value) -> ir.Value:
        """Return the low-precision version widened to f32: the value in memory."""
        versions = self.known[value]
        if versions.stored is None:
            versions.stored = _cast(self._narrowed(value), F32)
        return versions.stored

    def _bounded(self, mask: ir.Value) -> ir.Value:
        """Bound a mask that is added to scores: a row of -infinity results in NaN, the lowest finite value does not."""
        if not _is_f32(mask):
            return mask
        wide = self._wide(mask)
        with _after(wide):
            lowest = np.full((), LOWEST[self.dtype.name], np.float32)
            result: ir.Value = OPS["maximum"].make(
                wide, emit_constant(lowest, TensorType.of((), "f32"), self.session, "lowest")
            )
            return result


class _ConstantConverter(_Converter):
    """Converter that narrows the constants of products and of tables only."""

    def __init__(self, dtype: DType, keep: frozenset[str], session: Session, max_rows: int = 0):
        super().__init__(dtype, keep, session, max_rows)
        self.has_changed = False

    def _sum_wide(self, op: ir.Operation) -> None:
        for i, value in enumerate(op.operands):
            is_weight = i < 2 and _is_f32(value) and is_constant(value) and self._fits(value)
            op.operands[i] = self._rounded(value) if is_weight and self._has_few_rows(op, i) else self._wide(value)

    def _has_few_rows(self, op: ir.Operation, position: int) -> bool:
        """Return whether a product multiplies each element of an operand at most `max_rows` times, or may do so."""
        kinds = [TensorType.from_mlir(value.type) for value in (*op.operands, *op.results)]
        static = [kind for kind in kinds if kind is not None and kind.is_static]
        if not self.max_rows or len(static) < len(kinds):
            return True
        count = len(op.operands)
        products = class_of(op).flops(static[:count], static[count:], **op.opview.attribute_values()) // 2
        return products <= self.max_rows * prod(static[position].static_shape)

    def _narrow(self, op: ir.Operation) -> None:
        if isinstance(op.opview, AttentionBase):
            self._stay(op)
        else:
            self._sum_wide(op)

    def _rounded(self, constant: ir.Value) -> ir.Value:
        """Return a constant in the low-precision type, widened to f32."""
        self.has_changed = True
        self._narrowed(constant)
        return self._widened(constant)

    def _move(self, op: ir.Operation) -> None:
        self.has_changed = True
        results = self._remake(op, [self._narrowed(value) for value in op.operands])
        self._remember(op, [_PrecisionVersions(None, value, False) for value in results])


class _RowConverter(_Converter):
    """Converter that narrows the rows of products whose weights are stored in the low-precision type."""

    def __init__(self, dtype: DType, keep: frozenset[str], session: Session, max_rows: int = 0):
        super().__init__(dtype, keep, session, max_rows)
        self.has_changed = False

    def convert(self, op: ir.Operation) -> None:
        """Convert a product with narrow weights; other operations stay."""
        is_product = _precision_of(op) is Precision.WIDE_RESULT and op.opview.out_dtype is None
        if not is_product or self._is_kept(op) or not self._has_narrow_weights(op):
            self._stay(op)
            return
        self.has_changed = True
        self._sum_wide(op)
        for value in op.results:
            if value in self.known:
                self.known[value].is_narrow = False  # what is computed from sums stays in f32

    def _has_narrow_weights(self, op: ir.Operation) -> bool:
        """Return whether an operand of a product is a widened constant of the low-precision type."""
        return all(map(_is_f32, list(op.operands)[:2])) and any(map(self._is_widened, list(op.operands)[:2]))

    def _is_widened(self, value: ir.Value) -> bool:
        while isinstance(value, ir.OpResult) and _precision_of(value.owner.operation) is Precision.MOVES:
            value = value.owner.operands[0]
        cast = defining(value, "relax.cast")
        return cast is not None and kind_of(cast.x).dtype.name == self.dtype.name and is_constant(cast.x)


CONVERTERS = {ALL: _Converter, CONSTANTS: _ConstantConverter, ROWS: _RowConverter}


def _precision_of(op: ir.Operation) -> Precision:
    """Return how an operation behaves in low precision."""
    result: Precision = getattr(type(op.opview), "PRECISION", Precision.F32)
    return result


def _cast(value: ir.Value, dtype: DType) -> ir.Value:
    location = ir.Location.unknown() if isinstance(value.owner, ir.Block) else value.owner.location
    with _after(value), location:
        result: ir.Value = OPS["cast"].make(value, dtype=dtype)
        return result


def _after(value: ir.Value) -> ir.InsertionPoint:
    """Return the insertion point after a value's definition, so that all its users can use what is emitted there."""
    owner = value.owner
    return ir.InsertionPoint.at_block_begin(owner) if isinstance(owner, ir.Block) else ir.InsertionPoint.after(owner)


def _is_f32(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and isinstance(value.type.element_type, ir.F32Type)


def _is_other_float(value: ir.Value) -> bool:
    kind = value.type.element_type if isinstance(value.type, ir.RankedTensorType) else None
    return isinstance(kind, ir.FloatType) and not isinstance(kind, ir.F32Type)
