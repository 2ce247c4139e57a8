"""Cases of operators derived from the declarations of their classes: shapes that `infer` accepts, and `meaning`."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.context import graph_operations
from mirlo.dialects.core.attributes import REQUIRED
from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.core.errors import OpError
from mirlo.dialects.core.op import apply_meaning
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.values import ValueDeclaration
from mirlo.dialects.relax.reduce import Reduce
from mirlo.tools.conformance.case import COLUMNS, TABLE, Draw, Operand, OperatorCase, wide
from mirlo.tools.conformance.programs import operator_class

if TYPE_CHECKING:
    from mirlo.dialects.core.op import DialectOp

SHAPES: tuple[tuple[int, ...], ...] = ((5, 37), (8, 16), (16, 12), (16,), (2, 8, 16), (1, 8, 16, 4), ())
"""Shapes that are tried for the operands of an operator that is not elementwise."""
_MODULES = ("elementwise", "arrays", "networks", "vision", "dynamic", "references")
MAX_SEARCHED = 4
"""Operands for which shapes are searched: there are 7 ** 4 combinations."""
BROADCAST = {1: ((3, 37),), 2: ((3, 1, 37), (5, 37)), 3: ((3, 1), (3, 37), (37,))}
"""Shapes of elementwise operators, by their number of operands."""


def expected(
    cls: type[DialectOp], operands: Sequence[Operand], attributes: dict[str, object]
) -> tuple[np.ndarray, ...]:
    """Return the result of an operator's `meaning` on operands, in the widest types."""
    return _results(cls, _meaning_of(cls), [_widened(o) for o in operands], attributes)


def _meaning_of(cls: type[DialectOp]) -> Callable[..., object]:
    """Return an operator's `meaning` as a function of arrays."""
    return lambda *operands, **attributes: apply_meaning(cls, operands, attributes)


def evaluate(operator: str, operands: Sequence[Operand], attributes: dict[str, object]) -> tuple[np.ndarray, ...]:
    """Evaluate an operator by the meaning in its class or in `references.py`; raise ValueError where there is none."""
    cls = operator_class(operator)
    function = TABLE.references.get(operator)
    if function is None and cls.meaning is None:
        raise ValueError(f"'{cls.OPERATION_NAME}' does not say what it means")
    if function is None:
        try:
            return expected(cls, operands, attributes)
        except ValueError:
            # It may be said for the types of the case only.
            narrow = [_narrow(o) if isinstance(o, np.ndarray) else o for o in operands]
            return _results(cls, _meaning_of(cls), narrow, attributes)
    return _results(cls, function, [_widened(o) for o in operands], attributes)


def _narrow(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _widened(operand: Operand) -> Operand:
    return [wide(x) for x in operand] if isinstance(operand, list) else _wide(operand)


def _results(
    cls: type[DialectOp], function: Callable[..., object], operands: Sequence[Operand], attributes: dict[str, object]
) -> tuple[np.ndarray, ...]:
    """Apply a function of operands and of all attributes by name."""
    named_attributes = {name: declared.default for name, declared in cls._attributes.items()} | attributes
    named_attributes = {
        name: cls._attributes[name].normalize(v) if v is not None else None for name, v in named_attributes.items()
    }
    with np.errstate(all="ignore"):
        result = function(*operands, **named_attributes)
    if result is None:
        raise ValueError(f"'{cls.OPERATION_NAME}' does not say what it means for {named_attributes}")
    return tuple(np.asarray(array) for array in (result if isinstance(result, tuple) else (result,)))


def _wide(array: np.ndarray | None) -> np.ndarray | None:
    return None if array is None else wide(array)


def derive_cases() -> None:
    """Add cases of all operators that have a meaning and none in the modules of cases, of plug-ins among them."""
    for module in _MODULES:
        importlib.import_module(f"mirlo.tools.conformance.{module}")
    for full, cls in graph_operations().items():
        name = full.removeprefix("relax.")
        if name in TABLE.makers or cls.meaning is None or not cls.infers:
            continue
        if issubclass(cls, Reduce):
            _add_reductions(name, cls)
            continue
        if any(attribute.default is REQUIRED for attribute in cls._attributes.values()):
            continue
        kinds = tuple(kind for kind in COLUMNS if _shapes(cls, kind, 1) is not None)
        if kinds:
            TABLE.add(name, kinds, _maker(cls))
            for other in _choices(cls):
                TABLE.add(name, kinds, _maker(cls, **other))


def _choices(cls: type[DialectOp]) -> Iterator[dict[str, object]]:
    """Return the other values of attributes that are one of several."""
    for name, declared in cls._attributes.items():
        for value in declared.choices or ():
            if value != declared.default:
                yield {name: value}


def _fields(cls: type[DialectOp]) -> list[ValueDeclaration]:
    """Return the operands of a case: all but optional ones."""
    return [field for field in cls._operand_layout.fields if field.kind != "optional"]


def _shapes(cls: type[DialectOp], kind: str, tile: int) -> tuple[tuple[int, ...], ...] | None:
    """Return shapes of operands that the operator's inference accepts for an element type."""
    count = len(_fields(cls))
    defaults = {name: declared.default for name, declared in cls._attributes.items()}
    tried: list[tuple[tuple[int, ...], ...]] = (
        [BROADCAST[count]] if Trait.ELEMENTWISE in cls.TRAITS and count in BROADCAST else []
    )
    infer = getattr(cls, "infer", None)
    assert infer is not None
    searched = itertools.product(SHAPES, repeat=count) if count <= MAX_SEARCHED else ()
    for shapes in (*tried, *searched):
        rounded = tuple(tuple(_multiple(size, tile) for size in shape) for shape in shapes)
        types = iter(TensorType.of(shape, kind) for shape in rounded)
        operands = [
            [next(types)] if f.kind == "variadic" else next(types) if f.kind == "single" else None
            for f in cls._operand_layout.fields
        ]
        try:
            output = infer(*operands, **defaults)
        except (OpError, ValueError, TypeError, IndexError):
            continue
        results = output if isinstance(output, tuple) else (output,)
        if all(result.is_static for result in results):
            return rounded
    return None


def _multiple(size: int, tile: int) -> int:
    return size if size == 1 else -(-size // tile) * tile


def _maker(cls: type[DialectOp], **attributes: object) -> Callable[[Draw], OperatorCase]:
    def make(draw: Draw) -> OperatorCase:
        shapes = _shapes(cls, draw.kind.name, draw.tile)
        if shapes is None:
            raise ValueError("no shapes fit")
        arrays = []
        for i, shape in enumerate(shapes):
            low, high = cls.DOMAIN[min(i, len(cls.DOMAIN) - 1)]
            arrays.append(_array(draw, shape, low, high))
        remaining = iter(arrays)
        operands = [
            [next(remaining)] if f.kind == "variadic" else next(remaining) if f.kind == "single" else None
            for f in cls._operand_layout.fields
        ]
        results = expected(cls, operands, attributes)
        if draw.is_float and results[0].dtype == np.bool_ and len(arrays) == 1:
            arrays[0].reshape(-1)[:3] = [np.nan, np.inf, -np.inf]
            results = expected(cls, operands, attributes)
        return OperatorCase(tuple(operands), attributes, results)

    return make


def _array(draw: Draw, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    array = draw.array(*shape, low=low, high=high)
    return array if shape else array.reshape(())


def _add_reductions(name: str, cls: type[Reduce]) -> None:
    """Add reductions of a last axis, of several, and of all."""
    for axes in ((-1,), (0, 1), None):
        TABLE.add(name, _reduced_kinds(cls), _reduction(cls, axes))


def _reduced_kinds(cls: type[Reduce]) -> tuple[str, ...]:
    """Return the types that the reduction accepts and stays in: the mean of integers is not an integer."""
    kinds = []
    for kind in COLUMNS:
        element = dtype(kind)
        stays = element.is_float or wide(expected(cls, [np.ones((2, 3), element.to_numpy())], {})[0]).dtype.kind in "ib"
        if element.kind in cls.KINDS and stays:
            kinds.append(kind)
    return tuple(kinds)


def _reduction(cls: type[Reduce], axes: tuple[int, ...] | None) -> Callable[[Draw], OperatorCase]:
    def make(draw: Draw) -> OperatorCase:
        x = draw.array(2, 3, 5) if draw.kind.is_bool else draw.nonzero(2, 3, 5, high=1.5)
        attributes: dict[str, object] = {"axes": axes, "keepdims": axes is not None}
        return OperatorCase((x,), attributes, expected(cls, [x], attributes))

    return make
