"""Operations as small typed classes.

    class Softmax(RelaxOp, name="softmax"):
        x = operand()
        axis = Int(-1)

        @staticmethod
        def infer(x, *, axis):
            return x

`infer` is a pure function from the types of the operands (`TensorType`, None for an absent optional one, a list for
a variadic one) and the attributes (as keywords) to the type of the result, or a tuple of types. It raises `OpError`
with a message for the user. The builder calls it to create an operation, the verifier to check one.

What else is known of an operator stands on its class too (`traits.py`): `TRAITS`, `PRECISION`, `AXES`, `ONNX`, its cost
(`flops`), its `meaning` in numpy and, where it is elementwise, as an expression of scalars (`scalar`).

The bindings' own `ext.Operation` is not used: it has no optional attributes, infers no types from those of operands,
and prints segment attributes even where none are needed (docs/decisions/16-dialects-in-python.md).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from numbers import Number
from typing import Any, ClassVar, Protocol
from weakref import WeakKeyDictionary

from mirlo.dialects import wheel
from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import REQUIRED, Attribute, Dims
from mirlo.dialects.core.conditions import Condition, collect_conditions, repeat_conditions
from mirlo.dialects.core.dim_algebra import Dim, UndecidedDim
from mirlo.dialects.core.errors import OpError, OpMistake
from mirlo.dialects.core.sharding import ShardingRule, broadcast_rule
from mirlo.dialects.core.traits import AxisAttributes, OnnxName, Precision, Trait
from mirlo.dialects.core.types import TensorType, compatible, dims_of
from mirlo.dialects.core.values import ValueDeclaration, ValueLayout, operand, operands, optional, result, results
from mirlo.runtime.callbacks import (
    CheckedMethods,
    Expected,
    describe_raised,
    describe_value,
    is_flag,
    is_foreign,
    is_time,
    name_of,
)
from mirlo.runtime.callbacks import optional as optional_of

__all__ = ["DialectOp", "class_of", "OpError", "infer_results", "operand", "operands", "optional", "result", "results"]


_DELIBERATE = (OpError, UndecidedDim, MemoryError)
"""What `infer` and `check` raise on purpose."""
OperandType = TensorType | Sequence["TensorType | None"] | None
"""The type of a declared operand: None for an absent one, a list for a variadic one."""


class HasValue(Protocol):
    """A tensor of an import, which stands for an SSA value."""

    @property
    def ssa(self) -> ir.Value: ...


Operand = ir.Value | HasValue | Sequence["ir.Value | HasValue"] | None


class OperationTable(Protocol):
    """A dialect, as its operations see it."""

    namespace: str

    def add(self, op_class: type[DialectOp]) -> None: ...


CHECKED_METHODS = CheckedMethods(
    {
        "flops": Expected("a number of operations", is_time),
        "meaning_steps": Expected("a number of elements", is_time),
        "folds": Expected("True or False", is_flag),
        "sharding": Expected("a ShardingRule, or None", optional_of(lambda value: isinstance(value, ShardingRule))),
    },
    OpMistake,
)
"""What methods of classes of plug-ins return; what `infer` and `meaning` return is read where these are called."""


class DialectOp(ir.OpView):
    """Base of Mirlo's operations. Subclass with `name=`, and with `dialect=` if no base class has one."""

    OPERATION_NAME: ClassVar[str] = ""
    _ODS_REGIONS = (0, True)
    _ODS_OPERAND_SEGMENTS = None
    _ODS_RESULT_SEGMENTS = None

    REGIONS: ClassVar[int] = 0
    PURE: ClassVar[bool] = True
    TERMINATOR: ClassVar[bool] = False
    ISOLATED: ClassVar[bool] = False
    NO_TERMINATOR: ClassVar[bool] = False
    DEFAULT_RESULT: ClassVar[bool] = False
    """Whether a class without declared results has one named `output`."""
    infers: ClassVar[bool] = False

    TRAITS: ClassVar[Collection[Trait]] = frozenset()
    """The operator's own traits; those of base classes are added."""
    PRECISION: ClassVar[Precision] = Precision.F32
    AXES: ClassVar[AxisAttributes | None] = None
    ONNX: ClassVar[OnnxName | None] = None
    NEUTRAL: ClassVar[float | None] = None
    """The number that leaves the left of two operands as it is, on the right; on either side of a commutative one."""
    FLOPS_PER_ELEMENT: ClassVar[int] = 1
    """Arithmetic operations for each element of the results."""
    DOMAIN: ClassVar[tuple[tuple[float, float], ...]] = ((-3.0, 3.0),)
    """The interval from which checks draw each operand; the last one is for all others."""
    meaning: ClassVar[Callable[..., Any] | None] = None
    """`meaning(*operands, **attributes)` on numpy arrays: the results, or None where they are not defined."""
    sharding: ClassVar[Callable[..., ShardingRule] | None] = None
    """`sharding(result_types, *operand_types, **attributes)`: how the operator is divided among ranks.

    Without it, ranks compute it from whole operands; elementwise operators need none."""
    LINEAR: ClassVar[tuple[tuple[int, ...], ...]] = ()
    """Sets of operands in which an elementwise operator on floats is linear: of partial sums of all ranks in one of
    these sets it makes partial sums."""
    scalar: ClassVar[Callable[..., Any] | None] = None
    """The same on scalar expressions, where numpy's functions do not say it; see `Trait.ELEMENTWISE`."""
    IN_F32: ClassVar[bool] = True
    """Whether the scalars of 16-bit floats are computed in f32."""

    _dialect: ClassVar[OperationTable]
    _attributes: ClassVar[dict[str, Attribute]] = {}
    _operand_layout: ClassVar[ValueLayout] = ValueLayout([], "operandSegmentSizes")
    _result_layout: ClassVar[ValueLayout] = ValueLayout([], "resultSegmentSizes")

    def __init_subclass__(cls, name: str | None = None, dialect: OperationTable | None = None, **kwargs: object):
        super().__init_subclass__(**kwargs)
        if dialect is not None:
            cls._dialect = dialect
        if name is None:
            return
        members: dict[str, ValueDeclaration | Attribute] = {}
        for base in reversed(cls.__mro__):
            members.update({k: v for k, v in vars(base).items() if isinstance(v, (ValueDeclaration, Attribute))})
        cls._attributes = {k: v for k, v in members.items() if isinstance(v, Attribute)}
        cls.TRAITS = _traits(cls)
        values = [v for v in members.values() if isinstance(v, ValueDeclaration)]
        if cls.DEFAULT_RESULT and not any(v.is_result for v in values):
            output = result()
            output.__set_name__(cls, "output")
            setattr(cls, "output", output)  # noqa: B010 (a class attribute made here)
            values.append(output)
        cls._operand_layout = ValueLayout([v for v in values if not v.is_result], "operandSegmentSizes")
        cls._result_layout = ValueLayout([v for v in values if v.is_result], "resultSegmentSizes")
        CHECKED_METHODS.add_to(cls, f"'{cls._dialect.namespace}.{name}'")
        cls.infers = hasattr(cls, "infer")
        cls.OPERATION_NAME = f"{cls._dialect.namespace}.{name}"
        cls._ODS_REGIONS = (cls.REGIONS, True)
        cls.verify_invariants = staticmethod(lambda op, cls=cls: _verify(cls, op))  # type: ignore[attr-defined]
        cls._dialect.add(cls)

    @classmethod
    def irdl_text(cls) -> str:
        operand_lines, operand_names = cls._operand_layout.irdl()
        result_lines, result_names = cls._result_layout.irdl()
        lines = operand_lines + result_lines
        if operand_names:
            lines.append(f"irdl.operands({', '.join(operand_names)})")
        if result_names:
            lines.append(f"irdl.results({', '.join(result_names)})")
        if cls.REGIONS:
            lines += [f"%region{i} = irdl.region" for i in range(cls.REGIONS)]
            lines.append(f"irdl.regions({', '.join(f'r{i}: %region{i}' for i in range(cls.REGIONS))})")
        body = "\n".join(lines)
        return f"irdl.operation @{cls.OPERATION_NAME.split('.', 1)[1]} {{ {body} }}"

    @classmethod
    def build(
        cls,
        *arguments: Operand,
        result_types: Sequence[TensorType | ir.Type] | None = None,
        loc: ir.Location | None = None,
        ip: ir.InsertionPoint | None = None,
        **attrs: object,
    ) -> ir.OpView:
        """Create the operation at the insertion point and return the operation view.

        `given` are the operands, one per declared operand (None for an absent optional one, a list for a variadic
        one; trailing optional ones may be left out): SSA values, or tensors of an import, which have one as `ssa`.
        Attributes are keywords, as Python values. Result types (`TensorType` or MLIR types) are inferred if the
        operation supports it.
        """
        layout = cls._operand_layout
        values = [_ssa_of(each) for each in arguments] + [None] * (len(layout.fields) - len(arguments))
        if len(values) > len(layout.fields):
            raise OpError(f"'{cls.OPERATION_NAME}' takes {len(layout.fields)} operands, got {len(values)}")
        attributes = encode_attributes(cls, attrs)
        if result_types is None:
            result_types = _infer_once(cls, values, attributes, lambda: _values_with_defaults(cls, attrs))
        types = [t.to_mlir() if isinstance(t, TensorType) else t for t in result_types]
        flat, sizes = layout.flatten(values, _type_of, cls.OPERATION_NAME)
        if sizes is not None:
            attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes)
        if cls._result_layout.segments:
            grouped = [types] if len(cls._result_layout.fields) == 1 else types
            _, sizes = cls._result_layout.flatten(grouped, lambda t: t, cls.OPERATION_NAME)
            attributes["resultSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes or [])
        op = ir.Operation.create(
            cls.OPERATION_NAME, results=types, operands=flat, attributes=attributes, regions=cls.REGIONS, loc=loc, ip=ip
        )
        return op.opview

    @classmethod
    def make(cls, *arguments: Operand, **kwargs: Any) -> Any:
        """Create the operation like `build`, and return its result value, or a tuple unless there is exactly one."""
        return values_of(cls.build(*arguments, **kwargs))

    @classmethod
    def flops(cls, operands: Sequence[TensorType], results: Sequence[TensorType], **attributes: Any) -> int:
        """Return the arithmetic operations for static types, a multiply-add counted as two."""
        return cls.FLOPS_PER_ELEMENT * sum(math.prod(kind.static_shape) for kind in results)

    @classmethod
    def meaning_steps(cls, operands: Sequence[Sequence[int]]) -> int:
        """Return about how many elements `meaning` computes one after another for operands of these shapes."""
        return sum(map(math.prod, operands))

    @classmethod
    def folds(cls, *operands: TensorType | None, **attributes: object) -> bool:
        """Return whether a constant result may be stored in place of the operator, if `meaning` gives it."""
        return True

    def attribute_values(self) -> dict[str, Any]:
        """Return all declared attributes with their Python values, including defaults."""
        return {name: getattr(self, name) for name in self._attributes}

    def size_conditions(self) -> list[Condition]:
        """Return what `infer` requires of sizes that only run time knows."""
        with collect_conditions() as conditions:
            if self.infers:
                arguments = [getattr(self, field.name) for field in self._operand_layout.fields]
                _infer_once(type(self), arguments, self.operation.attributes, self.attribute_values)
        return list(dict.fromkeys(conditions))

    @classmethod
    def dims_attributes(cls) -> list[str]:
        """Return the names of the attributes that are dims."""
        return [name for name, declared in cls._attributes.items() if isinstance(declared, Dims)]

    def every_dim(self) -> Iterator[Dim]:
        """Yield the dims of operands and results, and those that attributes hold: the begin of a slice is one."""
        for value in (*self.operation.operands, *self.operation.results):
            yield from dims_of(value.type)
        for name in self.dims_attributes():
            yield from getattr(self, name) or ()

    def operand_types(self) -> list[OperandType]:
        """Return the `TensorType` of each declared operand: None for an absent one, a list for a variadic one."""
        return [_types_of(getattr(self, field.name)) for field in self._operand_layout.fields]


def apply_meaning(
    cls: type[DialectOp],
    operands: Sequence[Any],
    attributes: Mapping[str, object],
    shapes: Sequence[Sequence[int]] | None = None,
) -> tuple[Any, ...] | None:
    """Apply `meaning` to arrays; return results of these shapes, or None where they are not defined."""
    meaning = cls.meaning
    assert meaning is not None, "the caller asked whether there is one"
    try:
        computed = meaning(*operands, **attributes)
    except (TypeError, *_DELIBERATE):
        raise
    except Exception as error:
        if not is_foreign(cls):
            raise
        raise OpMistake(f"'{cls.OPERATION_NAME}': {name_of(meaning)} raised {describe_raised(error)}") from error
    if computed is None:
        return None
    results = computed if isinstance(computed, tuple) else (computed,)
    computed_shapes = [getattr(each, "shape", () if isinstance(each, Number) else None) for each in results]
    if is_foreign(cls) and (None in computed_shapes or shapes is not None and [*map(tuple, shapes)] != computed_shapes):
        expected = "arrays" if shapes is None else f"arrays of the shapes {', '.join(str(tuple(s)) for s in shapes)}"
        raise OpMistake(
            f"'{cls.OPERATION_NAME}': {name_of(meaning)} returned {describe_value(computed)}: "
            f"expected {expected}, or None"
        )
    return results


def values_of(op: ir.Operation | ir.OpView) -> Any:
    """Return the result of an operation, or a tuple unless there is exactly one."""
    results = op.operation.results
    return results[0] if len(results) == 1 else tuple(results)


def class_of(op: ir.Operation | ir.OpView) -> type[DialectOp]:
    """Return the class of an operation of Mirlo or of a plug-in."""
    cls = type(op.operation.opview)
    if not issubclass(cls, DialectOp):
        raise TypeError(f"'{op.operation.name}' is not an operation of Mirlo or of a plug-in")
    return cls


def sharding_rule_of(op: ir.OpView) -> ShardingRule | None:
    """Return how an operation is divided among ranks; None for one that takes whole operands."""
    cls = type(op)
    if not issubclass(cls, DialectOp) or not (cls.sharding is not None or Trait.ELEMENTWISE in cls.TRAITS):
        return None
    view = cls(op.operation)
    results = [TensorType.from_mlir(value.type) for value in op.operation.results]
    operands = [TensorType.from_mlir(value.type) for value in op.operation.operands]
    known = [each for each in results if each is not None]
    flat = [each for each in operands if each is not None]
    if len(known) < len(results) or len(flat) < len(operands) or not known:
        return None
    if cls.sharding is not None:
        return cls.sharding(known, *view.operand_types(), **view.attribute_values())
    is_real = all(each.dtype.is_float for each in (*known, *flat))
    return broadcast_rule(flat, known, cls.LINEAR if is_real else ())


def _ssa_of(argument: Operand) -> ir.Value | Sequence[ir.Value] | None:
    """Return the SSA value, or the list of values, of an operand."""
    if argument is None or isinstance(argument, ir.Value):
        return argument
    if isinstance(argument, Sequence):
        return [each if isinstance(each, ir.Value) else each.ssa for each in argument]
    return argument.ssa


def _type_of(value: ir.Value) -> ir.Type:
    return value.type


def _traits(cls: type[DialectOp]) -> frozenset[Trait]:
    traits = {trait for base in cls.__mro__ for trait in vars(base).get("TRAITS", ())}
    if cls.AXES is not None:
        traits.add(Trait.AXES)
    if cls.NEUTRAL is not None:
        traits.add(Trait.NEUTRAL)
    if "data_layout" in cls._attributes:
        traits.add(Trait.DATA_LAYOUT)
    if Trait.ELEMENTWISE in traits and (cls.scalar is not None or cls.meaning is not None):
        traits.add(Trait.SCALAR)
    return frozenset(traits)


def _types_of(value: ir.Value | Sequence[ir.Value] | None) -> OperandType:
    if value is None or isinstance(value, ir.Value):
        return None if value is None else _tensor_type_of(value)
    return [_tensor_type_of(member) for member in value]


def _tensor_type_of(value: ir.Value) -> TensorType | None:
    try:
        return TensorType.from_mlir(value.type)
    except ValueError as error:
        raise OpError(str(error)) from None


def encode_attributes(cls: type[DialectOp], attrs: Mapping[str, object]) -> dict[str, ir.Attribute]:
    """Return MLIR attributes for these Python values, without those that equal their default."""
    encoded = {}
    for name, value in attrs.items():
        declared = cls._attributes.get(name)
        if declared is None:
            raise OpError(_no_such_attribute(cls, name))
        if value is None:
            continue
        value = _normalize(declared, value)
        if declared.default is not None and declared.default is not REQUIRED and value == declared.default:
            continue
        attribute = declared.encode(value)
        complaint = declared.complaint(attribute)
        if complaint:
            raise OpError(complaint)
        encoded[name] = attribute
    for name, declared in cls._attributes.items():
        if declared.default is REQUIRED and name not in encoded:
            raise OpError(f"'{cls.OPERATION_NAME}' needs the attribute '{name}'")
    return encoded


def _normalize(declared: Attribute, value: object) -> object:
    try:
        return declared.normalize(value)
    except (TypeError, ValueError) as error:
        why = f" ({error})" if isinstance(error, ValueError) else ""
        raise OpError(f"attribute '{declared.name}' must be {declared.expected}, got {value!r}{why}") from None


def infer_results(
    cls: type[DialectOp], arguments: Sequence[ir.Value | Sequence[ir.Value] | None], attrs: Mapping[str, object]
) -> Sequence[TensorType]:
    """Return the result types for these operand values and attributes (Python values)."""
    return _infer(cls, arguments, _values_with_defaults(cls, attrs))


def _values_with_defaults(cls: type[DialectOp], attrs: Mapping[str, object]) -> dict[str, object]:
    """Return the declared attributes, normalized, for an operation that infers its results."""
    if not cls.infers:
        raise OpError(f"'{cls.OPERATION_NAME}' cannot infer its results: pass result_types")
    values = {name: declared.default for name, declared in cls._attributes.items()}
    for name, value in attrs.items():
        if name not in values:
            raise OpError(_no_such_attribute(cls, name))
        if value is not None:
            values[name] = _normalize(cls._attributes[name], value)
    for name, value in values.items():
        if value is REQUIRED:
            raise OpError(f"'{cls.OPERATION_NAME}' needs the attribute '{name}'")
    return values


_Inferred = tuple[Sequence[TensorType], tuple[Condition, ...]]
_INFERRED: WeakKeyDictionary[ir.Context, dict[tuple[object, ...], _Inferred]] = WeakKeyDictionary()
"""The result types, and the conditions on sizes, of the operations of each context, by what determines them.

Equal layers of a model have equal operations. Types and attributes are known by their addresses (`types.py`).
"""
_VERIFIED: WeakKeyDictionary[ir.Context, set[tuple[object, ...]]] = WeakKeyDictionary()
"""The operations of each context that were verified, but for their own `check`, by what determines that."""


def _infer_once(
    cls: type[DialectOp],
    arguments: Sequence[ir.Value | Sequence[ir.Value] | None],
    attributes: Mapping[str, ir.Attribute] | ir.OpAttributeMap,
    values: Callable[[], Mapping[str, object]],
) -> Sequence[TensorType]:
    """Infer the result types, once for equal operand types and attributes in a context.

    `attributes` are those of the operation; `values` returns the declared ones as Python values.
    """
    declared = frozenset((name, hash(attributes[name])) for name in attributes if name in cls._attributes)
    types = tuple(map(_address_of_types, arguments))
    first = next((each for each in _flat(arguments)), None)
    context = first.context if first is not None else ir.Context.current
    known = _INFERRED.setdefault(context, {})
    key = cls, types, declared
    inferred = known.get(key)
    if inferred is None:
        with collect_conditions() as conditions:
            listed = _infer(cls, arguments, values())
        inferred = known[key] = listed, tuple(conditions)
    repeat_conditions(inferred[1])
    return inferred[0]


def _flat(arguments: Sequence[ir.Value | Sequence[ir.Value] | None]) -> Iterator[ir.Value]:
    for each in arguments:
        if isinstance(each, ir.Value):
            yield each
        elif each is not None:
            yield from each


def _address_of_types(value: ir.Value | Sequence[ir.Value] | None) -> object:
    """Return the address of the type of an operand: a tuple for a variadic one, None for an absent one."""
    if value is None:
        return None
    return hash(value.type) if isinstance(value, ir.Value) else tuple(hash(each.type) for each in value)


def _infer(
    cls: type[DialectOp], arguments: Sequence[ir.Value | Sequence[ir.Value] | None], values: Mapping[str, object]
) -> Sequence[TensorType]:
    types = [_types_of(value) for value in arguments]
    for field, value in zip(cls._operand_layout.fields, arguments, strict=True):
        _require_tensors(field, value)
    try:
        inferred = cls.infer(*types, **values)  # type: ignore[attr-defined]
    except _DELIBERATE:
        raise
    except Exception as error:
        raise OpMistake(f"'{cls.OPERATION_NAME}': {name_of(cls.infer)} raised {describe_raised(error)}") from error  # type: ignore[attr-defined]
    listed = inferred if isinstance(inferred, (tuple, list)) else (inferred,)
    for result_type in listed:
        if not isinstance(result_type, TensorType):
            raise OpMistake(
                f"'{cls.OPERATION_NAME}': {name_of(cls.infer)} must return TensorType, or a tuple of them; "  # type: ignore[attr-defined]
                f"got {describe_value(result_type)}"
            )
    fields = cls._result_layout.fields
    if len(listed) != len(fields) and all(field.kind == "single" for field in fields):
        raise OpMistake(
            f"'{cls.OPERATION_NAME}' has {len(fields)} results, but its {name_of(cls.infer)} returned {len(listed)}"  # type: ignore[attr-defined]
        )
    return listed


def _require_tensors(field: ValueDeclaration, value: ir.Value | Sequence[ir.Value] | None) -> None:
    if value is None:
        if field.kind == "single":
            raise OpError(f"operand '{field.name}' is missing")
        return
    members = [value] if isinstance(value, ir.Value) else value
    for member in members:
        if _tensor_type_of(member) is None:
            what = f"'{field.name}' must be a ranked tensor of a known element type"
            raise OpError(f"operand {what}, got {member.type}")


def _no_such_attribute(cls: type[DialectOp], name: str) -> str:
    near = difflib.get_close_matches(name, cls._attributes, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else f"; it has: {', '.join(cls._attributes) or 'none'}"
    return f"has no attribute '{name}'{hint}"


_BUILT_IN = ("operandSegmentSizes", "resultSegmentSizes")


def _verify(cls: type[DialectOp], op: ir.OpView) -> bool:
    """Verify declared attributes, then inference, then the operation's own `check`."""
    try:
        view = cls(op.operation)
        known = _VERIFIED.setdefault(view.operation.context, set())
        key = _verified_key(cls, view.operation)
        if key not in known:
            _verify_counts(cls, view.operation)
            _verify_attributes(cls, view)
            if cls.infers:
                # The caller of the verifier may not have entered a context, which an operator without operands needs.
                with op.operation.context:
                    _verify_types(cls, view)
            known.add(key)
        check = getattr(cls, "check", None)
        if check is not None:
            # So do checks, which create types and attributes.
            with op.operation.context:
                _run_check(check, view)
    except OpError as error:
        op.operation.location.emit_error(f"'{cls.OPERATION_NAME}' op {error}")
        return False
    outside = wheel.capturing(ir, op.operation) if cls.ISOLATED else None
    if outside is not None:
        outside.location.emit_error(f"'{outside.name}' op using value defined outside the region")
        return False
    return True


def _verified_key(cls: type[DialectOp], op: ir.Operation) -> tuple[object, ...]:
    """Return what determines whether an operation is valid, but for its own `check`."""
    attributes = op.attributes
    return (
        cls, len(op.regions), tuple(hash(value.type) for value in op.operands),
        tuple(hash(value.type) for value in op.results), tuple((name, hash(attributes[name])) for name in attributes),
    )  # fmt: skip


def _run_check(check: Callable[[ir.OpView], object], view: ir.OpView) -> None:
    try:
        check(view)
    except _DELIBERATE:
        raise
    except Exception as error:
        raise OpMistake(f"its {name_of(check)} raised {describe_raised(error)}") from error


def _verify_counts(cls: type[DialectOp], op: ir.Operation) -> None:
    """Verify operand and result counts: the bindings run this verifier before IRDL's."""
    if len(op.regions) != cls.REGIONS:
        raise OpError(f"needs {cls.REGIONS} regions, got {len(op.regions)}")
    for layout, values in ((cls._operand_layout, op.operands), (cls._result_layout, op.results)):
        complaint = layout.complaint(op, values)
        if complaint:
            raise OpError(complaint)


def _verify_attributes(cls: type[DialectOp], view: ir.OpView) -> None:
    present = view.operation.attributes
    for named in present:
        name = named if isinstance(named, str) else named.name
        declared = cls._attributes.get(name)
        if declared is not None:
            complaint = declared.complaint(present[name])
            if complaint:
                raise OpError(complaint)
        elif "." not in name and name not in _BUILT_IN:
            raise OpError(_no_such_attribute(cls, name))
    for name, declared in cls._attributes.items():
        if declared.default is REQUIRED and name not in present:
            raise OpError(f"needs the attribute '{name}', {declared.expected}")


def _verify_types(cls: type[DialectOp], view: ir.OpView) -> None:
    arguments = [getattr(view, field.name) for field in cls._operand_layout.fields]
    inferred = _infer_once(cls, arguments, view.operation.attributes, view.attribute_values)
    declared = view.operation.results
    if len(declared) != len(inferred):
        raise OpError(f"has {len(declared)} results, but its operands and attributes make {len(inferred)}")
    for i, (value, expected) in enumerate(zip(declared, inferred, strict=True)):
        actual = _tensor_type_of(value)
        if actual is None or not compatible(actual, expected):
            what = f"result #{i}" if len(inferred) > 1 else "result"
            raise OpError(
                f"{what} is declared {actual or value.type}, but its operands and attributes make it {expected}"
            )
