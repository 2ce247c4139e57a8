"""The pass `fold-constant`: constant folding."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import field
from math import prod
from typing import Any, NamedTuple

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.budget import FOLDED_BYTES, FOLDINGS
from mirlo.dialects.core.dims import UndecidedDim
from mirlo.dialects.core.op import DialectOp, apply_meaning, class_of
from mirlo.dialects.core.surgery import attributes_of, blocks, erase_dead, replace_op
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry
from mirlo.dialects.core.traits import Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.create import Constant
from mirlo.dialects.relax.index import Gather
from mirlo.dialects.relax.meanings import widened
from mirlo.passes.graph.constants import (
    INLINE_ELEMENTS,
    constant_name,
    constant_value,
    emit_constant,
    emit_derived_constant,
    is_constant,
    is_derivable,
    stacked,
)
from mirlo.passes.graph.unknown import (
    ConstantSource,
    DeferredElements,
    DerivedConstant,
    UnknownConstants,
    unknown_constants,
)
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.session import Session
from mirlo.passes.targets import HOST, CompileOptions, find_target
from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass

NOT_EVALUATED = frozenset({Trait.INTERFACE, Trait.COLLECTIVE})
"""Traits of operators that compute nothing by themselves, or only with other ranks."""


def is_evaluated(op: ir.Operation) -> bool:
    """Return whether an operation is a function of its operands alone."""
    view = op.opview
    if not isinstance(view, DialectOp) or not view.PURE or view.REGIONS or not op.results:
        return False
    return NOT_EVALUATED.isdisjoint(view.TRAITS)


def evaluate(op: ir.Operation, operands: Sequence[np.ndarray], kinds: Sequence[TensorType]) -> list[np.ndarray] | str:
    """Return the results of an operation, whose types are static, or why they cannot be computed.

    Numpy evaluates what it can, in microseconds. What the operator's class does not define in numpy is compiled, which
    takes a tenth of a second, so that each operator that has a kernel is evaluated.
    """
    results = _evaluate_in_numpy(op, operands, kinds)
    if results is None:
        return _run_kernel(op, operands)
    return [np.asarray(array, kind.dtype.to_numpy()) for array, kind in zip(results, kinds, strict=True)]


def _evaluate_in_numpy(
    op: ir.Operation, operands: Sequence[np.ndarray], kinds: Sequence[TensorType]
) -> Sequence[np.ndarray] | None:
    """Return the result in numpy, or None where the operator's class does not define it."""
    view, cls = op.opview, class_of(op)
    if cls.meaning is None:
        return None
    if Trait.ELEMENTWISE in cls.TRAITS and cls.IN_F32:
        operands = [widened(array) for array in operands]
    picked = cls._operand_layout.pick_all(op, operands)
    return _meaning(cls, picked, view.attribute_values(), [kind.static_shape for kind in kinds])


def _meaning(
    cls: type[DialectOp], operands: Sequence[Any], attributes: dict[str, Any], shapes: Sequence[tuple[int, ...]]
) -> Sequence[np.ndarray] | None:
    try:
        with np.errstate(all="ignore"):
            return apply_meaning(cls, operands, attributes, shapes)
    except (TypeError, UndecidedDim):  # numpy has no such operator for this element type, or for symbolic dims
        return None


def _run_kernel(op: ir.Operation, operands: Sequence[np.ndarray]) -> list[np.ndarray] | str:
    """Compile a module with the operation alone for this machine and run it."""
    if not all(isinstance(dim, int) for dim in op.opview.every_dim()):
        return "its sizes are dynamic"
    from mirlo.runtime.executable import Executable  # a tenth of the modules of a compilation; most evaluate in numpy

    target, options, session = find_target(HOST), CompileOptions(target=HOST, jobs=1), Session()
    pipeline = Pipeline(target.pipeline(options))
    pipeline.remove_all(FoldConstant.name)  # it would evaluate an operation without operands again
    try:
        module = _module_of(op)
        pipeline.run(module, session)
        results = Executable(target.emit(module, options), session.params)(*operands)
    except MirloError as error:
        return f"its kernel does not compile: {' '.join(str(error).split())}"
    return list(results) if isinstance(results, tuple) else [results]


def _module_of(op: ir.Operation) -> ir.Module:
    """Return a module whose entry computes the operation from arguments."""
    module = ir.Module.create(op.location)
    kind = ir.FunctionType.get([value.type for value in op.operands], [value.type for value in op.results])
    with ir.InsertionPoint(module.body), op.location:
        function = ir.Operation.create(
            "func.func",
            attributes={"sym_name": ir.StringAttr.get(ENTRY_NAME), "function_type": ir.TypeAttr.get(kind)},
            regions=1,
        )
        block = function.regions[0].blocks.append(*kind.inputs, arg_locs=[op.location] * len(kind.inputs))
        with ir.InsertionPoint(block):
            copy = op.clone()
            for position, argument in enumerate(block.arguments):
                copy.operation.operands[position] = argument
            ir.Operation.create("func.return", operands=list(copy.operation.results))
    mark_entry(function)
    return module


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
    """Evaluate operators whose operands are all constants.

    Numpy evaluates them; an operator that is not defined in numpy is compiled for this machine and run once.

    A result may exceed the size of its operands by at most `grow` bytes: repeated data is cheaper to compute than to
    store. A result that takes many operations for each element, its operands included, may exceed it by 16 times that.
    Constants that only convolutions read are converted whatever their size.

    With `all`, which is for graphs whose products with packed weights are converted, the size of a result matters only
    where its readers compute its elements themselves: elementwise operators and those that move elements, and, with
    `widens`, products of constants that are converted to a wider type of floats.
    """

    name = "fold-constant"
    keeps_layers = True
    contained = True
    trusted = True
    anchor = "func.func"
    grow: int = option(FOLDED_GROWTH, "bytes by which a result may exceed its operands")
    all: bool = option(False, "fold results of any size, unless their readers compute their elements")
    packed: bool = option(False, "fold also weights that operators keep in few bits, as no product reads them so")
    widens: bool = option(False, "products convert constants of a narrower type of floats where they read them")
    explain: bool = option(False, "print what is computed from constants in each call, and why")

    def run(self, op: ir.OpView, session: Session) -> None:
        all_blocks = blocks(op)
        before = _params(all_blocks)
        left = FOLDED_BYTES + FOLDINGS * _constant_bytes(all_blocks)
        folder = _Folder(session, self.grow, left, self.packed, self.widens)
        for block in all_blocks:
            for operation in [o.operation for o in block.operations]:
                folder.fold(operation)
        if self.all:
            folder.fold_large()
        for remaining in folder.computed() if self.explain else ():
            session.remark(f"is computed from constants in each call: {remaining.why}", remaining.op.location)
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


@dataclass(frozen=True)
class _LargeResult:
    """A result that is computed from constants in each call, as it is large."""

    flops: int
    """The operations for each of its elements."""
    roots: frozenset[ir.Value]
    """The constants that it is computed from."""
    bytes: int
    """Those of it and of all results on the way to it."""


class ComputedConstant(NamedTuple):
    """An operation whose operands are constants and that is computed in each call, and why."""

    op: ir.Operation
    why: str


@dataclass
class _Folder:
    session: Session
    grow: int
    left: int
    """Bytes that may yet be made."""
    packed: bool
    """Whether operators fold that keep constants in few bits."""
    widens: bool
    """Whether products convert constants to a wider type of floats where they read them."""
    made: set[str] = field(default_factory=set)
    """Added parameters."""
    known: dict[ConstantKey, list[_FoldedConstant]] = field(default_factory=dict)
    """Attributes of the constants that replaced an operation, by its key: shared weights are folded once."""
    slices: dict[Hashable, str] = field(default_factory=dict)
    """Parameters of what an operation computes of each slice of a constant, by its key."""
    large: dict[ir.Value, _LargeResult] = field(default_factory=dict)
    refused: dict[ir.Value, str] = field(default_factory=dict)
    """Why results of operations on constants cannot be computed here."""

    def fold(self, op: ir.Operation) -> None:
        """Replace an operation by constants if its operands are constants, or large results that are worth it."""
        if not is_evaluated(op) or self._fold_slice(op):
            return
        if not any(v in self.large for v in op.operands):
            self._fold(op, self.grow)
            return
        if not all(is_constant(v) or v in self.large for v in op.operands):
            return
        kinds = _static_kinds(op)
        if kinds is None:
            return
        result = self._large(op, kinds)
        is_small = sum(kind.bytes for kind in kinds) <= _bytes(result.roots) + self.grow
        if result.flops >= WORTH_FLOPS or (is_small and result.bytes <= self.grow * WORTH_GROWTH):
            self._fold_with_operands(op, self.grow * WORTH_GROWTH)
        else:
            self.large.update(dict.fromkeys(op.results, result))

    def _fold_slice(self, op: ir.Operation) -> bool:
        """Fold an operation on a slice of a constant at a position known at run time: each slice is computed."""
        lookup = _lookup_of_slice(op)
        kinds = _static_kinds(op)
        if lookup is None or kinds is None or len(kinds) != 1 or class_of(op).meaning is None:
            return False
        folds = op.opview.folds(*op.opview.operand_types(), **op.opview.attribute_values())
        (kind,), constant, count = kinds, lookup.x, lookup.x.type.shape[0]
        if not folds or kind.bytes > _bytes([op.operands[0]]) + self.grow or kind.bytes * count > self.left:
            return False
        stacked_kind = kind.with_shape((count, *kind.shape))
        key = op.name, tuple(attributes_of(op).items()), constant.owner.opview.param, stacked_kind
        with ir.InsertionPoint.after(constant.owner), op.location:  # outside of loops, as the constant is
            if key in self.slices:
                folded: ir.Value = Constant.make(param=self.slices[key], result_types=[stacked_kind])
            else:
                computed = self._computed_slices(op, constant, stacked_kind)
                if computed is None:
                    return False
                self.left -= kind.bytes * count
                folded, self.slices[key] = computed, computed.owner.opview.param
                self.made.add(self.slices[key])
        with ir.InsertionPoint(op), op.location:
            result = Gather.make(folded, lookup.indices)
        replace_op(op, [result])
        return True

    def _computed_slices(self, op: ir.Operation, constant: ir.Value, kind: TensorType) -> ir.Value | None:
        """Return the constant of what an operation computes of each slice of another; None if numpy cannot."""
        if not is_derivable(constant, self.session):
            return None
        compute = _computation(op, [kind.with_shape(kind.shape[1:])])

        def elements(sources: Sequence[ConstantSource]) -> DeferredElements | None:
            read = sources[0].slice
            if compute([read(0)]) is None:
                return None

            def fill(source: np.ndarray, to: np.ndarray) -> None:
                results = compute([source])
                assert results is not None  # as for the first slice
                to[...] = results[0]

            return DeferredElements(*stacked(read, fill, kind))

        key = "slice", op.name, tuple(attributes_of(op).items()), op.results[0].type
        return emit_derived_constant(elements, key, [constant], kind, self.session, op.name.split(".")[-1])

    def fold_large(self) -> None:
        """Fold the large results that an operator reads as a whole, and that would be computed in memory."""
        for value, result in list(self.large.items()):
            if value in self.large and result.bytes <= self.left and self._is_needed_whole(value):
                self._fold_with_operands(value.owner.operation, None)

    def computed(self) -> list[ComputedConstant]:
        """Return the operations on constants that each call computes."""
        owners = dict.fromkeys(value.owner.operation for value in (*self.large, *self.refused) if value.uses)
        return [ComputedConstant(op, self._why(op)) for op in owners]

    def _why(self, op: ir.Operation) -> str:
        if op.results[0] in self.refused:
            return self.refused[op.results[0]]
        if not any(map(self._is_needed_whole, op.results)):
            return "its readers compute its elements"
        return f"it takes {self.large[op.results[0]].bytes} bytes, and {self.left} may be made"

    def _is_needed_whole(self, value: ir.Value) -> bool:
        """Return whether a value must be in memory: it is read as a whole, or is expensive to compute repeatedly."""
        takes_long = self.large[value].flops >= WORTH_FLOPS and Trait.ELEMENTWISE not in class_of(value.owner).TRAITS
        return takes_long or self._is_read_whole(value)

    def _is_read_whole(self, value: ir.Value) -> bool:
        """Return whether an operator that depends on inputs reads a value from memory."""
        for use in value.uses:
            user = use.owner.operation
            if any(result in self.large for result in user.results) or user.name.startswith("func."):
                continue
            if not isinstance(user.opview, DialectOp):
                return True
            traits = set(user.opview.TRAITS)
            if user.opview.PRECISION is Precision.MOVES or traits & {Trait.ELEMENTWISE, Trait.SUBSET}:
                continue
            if not (self.widens and Trait.CONTRACTION in traits and _is_widened(value)):
                return True
        return False

    def _large(self, op: ir.Operation, kinds: Sequence[TensorType]) -> _LargeResult:
        operands = list(dict.fromkeys(op.operands))  # one that is read twice is there once
        read = [self.large[v] for v in operands if v in self.large]
        flops = _flops_per_element(op, kinds) + sum(each.flops for each in read)
        roots = frozenset[ir.Value](v for v in operands if v not in self.large).union(*(each.roots for each in read))
        return _LargeResult(flops, roots, sum(kind.bytes for kind in kinds) + sum(each.bytes for each in read))

    def _fold_with_operands(self, op: ir.Operation, grow: int | None) -> None:
        for operand in dict.fromkeys(op.operands):
            if operand in self.large:
                self._fold_with_operands(operand.owner.operation, grow)
        self._fold(op, grow)

    def _fold(self, op: ir.Operation, grow: int | None) -> None:
        """Fold an operation of constants whose results exceed them by at most this many bytes; None for any number."""
        if not all(is_constant(v) for v in op.operands) or any(result in self.refused for result in op.results):
            return
        folds = grow is None or op.opview.folds(*op.opview.operand_types(), **op.opview.attribute_values())
        if not (folds or self.packed):
            return
        kinds = _static_kinds(op)
        if kinds is None:
            return
        if not folds or self._grows(op, kinds, grow):
            if grow == self.grow:
                self.large.update(dict.fromkeys(op.results, self._large(op, kinds)))
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

    def _grows(self, op: ir.Operation, kinds: Sequence[TensorType], grow: int | None) -> bool:
        read, size = _bytes(dict.fromkeys(op.operands)), sum(kind.bytes for kind in kinds)
        if size > self.left or (grow is not None and size > read + grow and not _is_for_convolutions(op)):
            return True
        self.left -= size
        return False

    def _evaluate(self, op: ir.Operation, kinds: Sequence[TensorType]) -> list[ir.Value]:
        """Return constants of the results, or nothing if they cannot be evaluated."""
        unknown = unknown_constants(self.session)
        if unknown is not None and any(v.owner.opview.param in unknown for v in op.operands):
            return _derived(op, kinds, unknown)
        arrays = [constant_value(v, self.session) for v in op.operands]
        operands = [array for array in arrays if array is not None]
        if len(operands) < len(arrays):
            return []
        results = evaluate(op, operands, kinds)
        if isinstance(results, str):
            self.refused.update(dict.fromkeys(op.results, results))
            return []
        return [emit_constant(array, kind, self.session, _name(op)) for array, kind in zip(results, kinds, strict=True)]


def _derived(op: ir.Operation, kinds: Sequence[TensorType], unknown: UnknownConstants) -> list[ir.Value]:
    """Return constants of the results of an operation on constants whose elements are not known."""
    constants = [v.owner.opview for v in op.operands]
    if class_of(op).meaning is None or any(prod(kind.static_shape) <= INLINE_ELEMENTS for kind in kinds):
        unknown.asked = "rules look at the elements of a small constant"
        return []
    compute = _computation(op, kinds)
    key = op.name, tuple(attributes_of(op).items()), tuple(r.type for r in op.results)
    names = tuple(c.param if c.param is not None else c.value for c in constants)
    types = tuple(kind for v in op.operands if (kind := TensorType.from_mlir(v.type)) is not None)

    def derived(result: int) -> DerivedConstant:
        def elements(sources: Sequence[ConstantSource]) -> np.ndarray | None:
            computed = compute([source.whole() for source in sources])
            return None if computed is None else computed[result]

        return DerivedConstant(elements, (result, *key), names, types, op.name.split(".")[-1])

    return [unknown.derive(derived(i), kind) for i, kind in enumerate(kinds)]


def _computation(
    op: ir.Operation, kinds: Sequence[TensorType]
) -> Callable[[Sequence[np.ndarray]], Sequence[np.ndarray] | None]:
    """Return what computes the results of an operation, of these types, from arrays, without references to IR."""
    cls, attributes, shapes = class_of(op), op.opview.attribute_values(), [kind.static_shape for kind in kinds]
    numbers = range(len(op.operands))
    picked = cls._operand_layout.pick_all(op, numbers)
    widens = Trait.ELEMENTWISE in cls.TRAITS and cls.IN_F32

    def compute(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray] | None:
        read = [widened(array) for array in arrays] if widens else arrays
        operands = [[read[i] for i in p] if isinstance(p, list) else p if p is None else read[p] for p in picked]
        results = _meaning(cls, operands, attributes, shapes)
        return results and [np.asarray(r, kind.dtype.to_numpy()) for r, kind in zip(results, kinds, strict=True)]

    return compute


def _lookup_of_slice(op: ir.Operation) -> ir.OpView | None:
    """Return the `gather` of a slice of a constant, at a position known at run time, that alone an operation reads."""
    if len(op.operands) != 1 or not isinstance(op.operands[0], ir.OpResult):
        return None
    view = op.operands[0].owner.opview
    if view.operation.name != "relax.gather" or not is_constant(view.x) or is_constant(view.indices):
        return None
    is_slice = not view.indices.type.shape and view.axis % len(view.x.type.shape) == 0 and view.x.type.shape[0] > 0
    return view if is_slice and view.x.owner.opview.param is not None else None


def _static_kinds(op: ir.Operation) -> list[TensorType] | None:
    """Return the types of the results; None if one is dynamic or no tensor."""
    kinds = [TensorType.from_mlir(result.type) for result in op.results]
    static = [kind for kind in kinds if kind is not None and kind.is_static]
    return static if len(static) == len(kinds) else None


def _flops_per_element(op: ir.Operation, kinds: Sequence[TensorType]) -> int:
    """Return the operations for each element that is read or made."""
    operands = [kind for value in op.operands if (kind := TensorType.from_mlir(value.type)) is not None]
    flops = class_of(op).flops(operands, kinds, **op.opview.attribute_values())
    return flops // max(1, *(prod(kind.static_shape) for kind in (*operands, *kinds)))


def _bytes(values: Iterable[ir.Value]) -> int:
    return sum(kind.bytes for v in values if (kind := TensorType.from_mlir(v.type)) is not None)


def _is_widened(value: ir.Value) -> bool:
    """Return whether a value is a constant that is converted to a wider type of floats, perhaps permuted."""
    op = value.owner.opview
    while op.operation.name == "relax.permute" and isinstance(op.x, ir.OpResult):
        op = op.x.owner.opview
    if op.operation.name != "relax.cast" or not is_constant(op.x):
        return False
    narrow, wide = TensorType.from_mlir(op.x.type), TensorType.from_mlir(op.output.type)
    assert narrow is not None and wide is not None  # operands and results of relax operators are tensors
    return narrow.dtype.is_float and wide.dtype.is_float and narrow.dtype.bits < wide.dtype.bits


def _is_for_convolutions(op: ir.Operation) -> bool:
    """Return whether an operation converts a value that only convolutions read, perhaps moved.

    They read a weight for many pixels, and in an order, or transformed, that is computed from constants beforehand.
    """
    if op.name != "relax.cast":
        return False
    values, readers = list(op.results), 0
    while values:
        for use in values.pop().uses:
            user = use.owner.operation
            reader = type(user.opview)
            if not issubclass(reader, DialectOp):
                return False
            if reader.PRECISION is Precision.MOVES:
                values += user.results
            elif {Trait.CONTRACTION, Trait.DATA_LAYOUT} <= set(reader.TRAITS):
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
