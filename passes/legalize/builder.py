"""The builder of legalization rules."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import dense_attribute
from mirlo.dialects.core.dtypes import DType, dtype
from mirlo.dialects.core.op import DialectOp, values_of
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.calls import CallDpsPacked, CallTir
from mirlo.dialects.relax.create import Constant
from mirlo.dialects.tir.buffers import FOREIGN
from mirlo.dialects.tir.compute import Expr, ExprLike, LoopFunction, PrimBuilder, TensorExpr, constant
from mirlo.dialects.tir.view import OPERATOR, PrimTemplate, describe_operator
from mirlo.passes.legalize.helpers import short_name, tensor_type
from mirlo.passes.made_by import check_emitted
from mirlo.passes.rules import Rule

PrimBody = Callable[..., "TensorExpr | tuple[TensorExpr, ...]"]
LoopBody = Callable[..., None]

Operands = ir.Value | Sequence[ir.Value] | None
"""What a declared operand is given: a value, several, or nothing."""


class SharedFunction(NamedTuple):
    """A prim function in the module, that equal operators call."""

    symbol: str
    outputs: list[TensorType]
    text: str | None
    """What the rule built, where that is compared with what it builds for other operators."""


class PrimFunctions:
    """The prim functions created by one run of the pass, so that equal operators share one."""

    def __init__(self, module: ir.OpView):
        self.module = module
        self.symbols = ir.SymbolTable(module.operation)
        self.known: dict[tuple[object, ...], list[SharedFunction]] = {}

    def insert(self, function: ir.OpView) -> str:
        """Append the function to the module under an unused name."""
        self.module.regions[0].blocks[0].append(function.operation)
        return ir.StringAttr(self.symbols.insert(function.operation)).value


class NeedsMemory(Exception):
    """Raised if a body uses a constant in a way that requires a tensor in memory."""


class SplatTensor(TensorExpr):
    """A splat constant: reading it emits the value, without access to memory."""

    def __init__(self, kind: TensorType, number: float | int | bool):
        self.type = kind
        self.number = number

    @property
    def key(self) -> tuple[TensorType, str]:
        return self.type, repr(self.number)

    @property
    def value(self) -> ir.Value:  # type: ignore[override]
        """Raise: a body that uses the tensor itself needs it in memory."""
        raise NeedsMemory

    def at(self, *indices: ExprLike, outside: float | int | None = None) -> Expr:
        return self.element(indices, outside)

    def element(self, indices: Sequence[ExprLike], outside: float | int | None = None) -> Expr:
        """Return the number, whatever the indices; a body with another number outside needs memory."""
        if outside is not None and outside != self.number:
            raise NeedsMemory
        return constant(self.number, self.dtype)


def splat_of(value: ir.Value) -> SplatTensor | None:
    """Return the splat tensor of a small constant, or None."""
    if not isinstance(value, ir.OpResult) or value.owner.name != "relax.constant":
        return None
    attribute = value.owner.opview.value
    kind = tensor_type(value)
    if attribute is None or not attribute.is_splat or kind.dtype.bits < 8 and not kind.dtype.is_bool:
        return None
    if kind.dtype.is_float and kind.dtype.bits < 16:
        return None
    number = attribute.get_splat_value().value
    return SplatTensor(kind, bool(number) if kind.dtype.is_bool else number)


class LegalizeBuilder:
    """The builder that a rule gets with the operator: prim functions and calls of them, in place of the operator."""

    def __init__(
        self,
        op: ir.OpView,
        operands: Sequence[ir.Value],
        ip: ir.InsertionPoint,
        prims: PrimFunctions,
        key: Hashable,
        rule: Rule | None = None,
    ):
        self.op = op
        self.ip = ip
        self.loc = op.operation.location
        self._prims = prims
        self._key = key
        self._foreign = rule if rule is not None and rule.is_foreign else None
        self._calls = 0
        self.created: list[str] = []
        """Names of the operators and `@names` of the functions that the rule created so far."""
        # During conversion the operator still refers to the old operands; these are the current ones.
        self._current = dict(zip(list(op.operation.operands), operands, strict=True))

    def value(self, value: ir.Value) -> ir.Value:
        """Return the current value of an operand of the operator."""
        return self._current.get(value, value)

    def call_prim(self, body: PrimBody, *values: ir.Value | None, name: str | None = None) -> ir.Value:
        """Call a prim function that `body` builds.

        `body(p, *tensors)` gets the compute builder and one tensor for each value that is not None (None stays
        None), and returns the output tensor, or a tuple of them. It must depend only on the operator's attributes
        and the types of the values: for equal ones it runs once, and the function is shared.
        """
        current = [None if v is None else self.value(v) for v in values]
        splats = [None if v is None else splat_of(v) for v in current]
        try:
            return self._call_prim(body, current, splats, name)
        except NeedsMemory:
            return self._call_prim(body, current, [None] * len(current), name)

    def _call_prim(
        self, body: PrimBody, current: list[ir.Value | None], splats: list[SplatTensor | None], name: str | None
    ) -> ir.Value:
        """Emit a call in which splat constants become constants of the body."""
        operands = [v for v, splat in zip(current, splats, strict=True) if v is not None and splat is None]
        types = [tensor_type(v) for v in operands]

        def build() -> tuple[ir.OpView, list[TensorType]]:
            prim = PrimBuilder(self._name(name), types, self.loc)
            tensors = iter(prim.inputs)
            members = [
                splat if splat is not None else None if v is None else next(tensors)
                for v, splat in zip(current, splats, strict=True)
            ]
            results = body(prim, *members)
            outputs: tuple[TensorExpr, ...] = results if isinstance(results, tuple) else (results,)
            if any(isinstance(output, SplatTensor) for output in outputs):
                raise NeedsMemory
            return prim.finish(*outputs), [output.type for output in outputs]

        shape_of_call = tuple(
            (v is None, splat.key if splat is not None else None) for v, splat in zip(current, splats, strict=True)
        )
        return self._call(operands, types, build, shape_of_call)

    def call_loops(
        self, body: LoopBody, *values: ir.Value, results: Sequence[TensorType] | None = None, name: str | None = None
    ) -> ir.Value:
        """Call a prim function that `body` writes as loops over buffers, for computations that are not blocks.

        `body(loops, *buffers)` gets the loop builder, one buffer for each value that is not None (None stays None),
        and one for each result; the results are those of the operator unless `results` lists others. As for
        `call_prim`, it must depend only on the operator's attributes and the types of the values.
        """
        current = [None if v is None else self.value(v) for v in values]
        types = [tensor_type(v) for v in current if v is not None]
        outputs = [tensor_type(v) for v in self.op.operation.results] if results is None else list(results)

        def build() -> tuple[ir.OpView, list[TensorType]]:
            function = LoopFunction(self._name(name), types, outputs, self.loc)
            buffers = iter(function.buffers)
            operands = [None if v is None else next(buffers) for v in current]
            built = function.build(lambda loops, *_: body(loops, *operands, *buffers))
            if results is None and [v for v in values if v is not None] == list(self.op.operation.operands):
                built.operation.attributes[OPERATOR] = self._operator()
            return built, outputs

        operands = [v for v in current if v is not None]
        return self._call(operands, types, build, tuple(v is None for v in current))

    def _operator(self) -> ir.Attribute:
        """Return the description of the operator, which defines a function that is written as loops."""
        op = self.op.operation
        attributes = {op.attributes[i].name: op.attributes[i].attr for i in range(len(op.attributes))}
        types = ([value.type for value in values] for values in (op.operands, op.results))
        return describe_operator(op.name, attributes, *types)

    def call_prim_func(
        self,
        template: PrimTemplate,
        *values: ir.Value,
        results: Sequence[TensorType] | None = None,
        name: str | None = None,
        **attributes: float,
    ) -> ir.Value:
        """Call a hand-written prim function (`@mirlo.prim_func`) for these values and attributes.

        Its symbols are bound to the dims of the values and of the results: those of the operator unless `results`
        lists others.
        """
        current = [self.value(v) for v in values]
        types = [tensor_type(v) for v in current]
        outputs = [tensor_type(v) for v in self.op.operation.results] if results is None else list(results)

        def build() -> tuple[ir.OpView, list[TensorType]]:
            return template.specialize(types, outputs, name or template.name, attributes)

        key = (template, tuple(outputs), tuple(sorted(attributes.items())))
        return self._call(current, types, build, key)

    def emit(self, operator: type[DialectOp], *values: Operands, **attributes: object) -> ir.Value:
        """Emit another relax operator, which is legalized in turn."""
        self.created.append(operator.OPERATION_NAME)
        with self.ip, self.loc:
            result: ir.Value = operator.make(*(self._now(v) for v in values), **attributes)
            return result

    def call_packed(self, function: str, *values: ir.Value) -> ir.Value:
        """Call a run-time function by name with the values and then the results, which it writes."""
        operands = [self.value(v) for v in values]
        outputs = [tensor_type(v) for v in self.op.operation.results]
        self.created.append(f'"{function}"')
        with self.ip, self.loc:
            result: ir.Value = values_of(CallDpsPacked.build(operands, result_types=outputs, function=function))
        return result

    def _now(self, value: Operands) -> Operands:
        if isinstance(value, (list, tuple)):
            return [self.value(member) for member in value]
        return self.value(value) if isinstance(value, ir.Value) else None

    def _name(self, name: str | None) -> str:
        return name or short_name(self.op)

    def _call(
        self,
        operands: Sequence[ir.Value],
        types: Sequence[TensorType],
        build: Callable[[], tuple[ir.OpView, list[TensorType]]],
        presence: tuple[object, ...],
    ) -> ir.Value:
        """Emit a call of the function that `build` creates, or of the one created for an equal operator."""
        key = (self._key, self._calls, tuple(types), presence)
        self._calls += 1
        shared = self._shared(self._prims.known.setdefault(key, []), build)
        self.created.append(f"@{shared.symbol}")
        with self.ip, self.loc:
            result: ir.Value = values_of(CallTir.build(operands, result_types=shared.outputs, callee=shared.symbol))
        return result

    def _shared(
        self, known: list[SharedFunction], build: Callable[[], tuple[ir.OpView, list[TensorType]]]
    ) -> SharedFunction:
        """Return the function of an equal operator, or build one.

        A rule of a user may read more than the key of equal operators contains, such as the names of their nodes: its
        functions are shared only if they are the same.
        """
        if known and self._foreign is None:
            return known[0]
        function, outputs = build()
        if self._foreign is not None:
            check_emitted(self._foreign, [function.operation])
            function.operation.attributes[FOREIGN] = ir.UnitAttr.get()
        text = None if self._foreign is None else str(function.operation.get_asm(use_local_scope=True))
        for shared in known:
            if shared.text == text:
                function.operation.erase()
                return shared
        shared = SharedFunction(self._prims.insert(function), outputs, text)
        known.append(shared)
        return shared


def dense(values: ArrayLike, element: str | DType) -> ir.Attribute:
    """Return a dense attribute of these values (nested lists or an array), for `relax.constant`."""
    kind = dtype(element)
    array = np.ascontiguousarray(np.asarray(values, dtype=kind.to_numpy()))
    return dense_attribute(array, TensorType(array.shape, kind))


def tensor_of(b: LegalizeBuilder, values: ArrayLike, element: str | DType) -> ir.Value:
    """Emit a `relax.constant` of these values, for use in prim functions."""
    attribute = dense(values, element)
    return b.emit(Constant, value=attribute, result_types=[attribute.type])
