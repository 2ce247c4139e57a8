"""The predicates of the pattern language; each returns True or a reason."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.types import as_dim
from mirlo.passes.byoc.search import PatternError, Predicate
from mirlo.passes.rules import Decline, decline

if TYPE_CHECKING:
    from mirlo.passes.byoc.graph import BlockNode, BlockValue
    from mirlo.passes.byoc.search import Match


def value_has_dtype(names: Sequence[str]) -> Callable[[BlockValue], bool | Decline]:
    def check(value: BlockValue) -> bool | Decline:
        actual = "no tensor" if value.type is None else value.type.dtype.name
        return True if actual in names else decline(f"expected element type {' or '.join(names)}", found=actual)

    return check


def value_has_rank(ranks: Sequence[int]) -> Callable[[BlockValue], bool | Decline]:
    def check(value: BlockValue) -> bool | Decline:
        actual = None if value.type is None else value.type.rank
        return True if actual in ranks else decline(f"expected rank {' or '.join(map(str, ranks))}", found=actual)

    return check


def value_has_shape(shape: tuple[int | str | None, ...]) -> Callable[[BlockValue], bool | Decline]:
    def check(value: BlockValue) -> bool | Decline:
        actual = () if value.type is None else value.type.shape
        if value.type is None or len(actual) != len(shape):
            return decline(f"expected the shape {_text(shape)}", found=_text(actual))
        for axis, (wanted, dim) in enumerate(zip(shape, actual, strict=True)):
            reason = _dim_is(wanted, dim)
            if reason is not None:
                return decline(f"expected the shape {_text(shape)}: dim {axis} is {dim}, {reason}", found=_text(actual))
        return True

    return check


def _dim_is(wanted: int | str | None, dim: Dim) -> str | None:
    if wanted is None:
        return None
    if callable(wanted):
        reason = Predicate.of(wanted).declines(dim)
        return None if reason is None else str(reason)
    return None if as_dim(wanted) == dim else f"not {wanted}"


def _text(shape: Sequence[Dim | str | None]) -> str:
    return "[" + ", ".join("?" if d is None else getattr(d, "__name__", str(d)) for d in shape) + "]"


def attribute_is(node: BlockNode, name: str, wanted: object) -> Decline | None:
    """Return why an attribute of an operation differs from the requested value, or None."""
    declared = getattr(type(node.op.opview), "_attributes", {})
    if name not in declared:
        near = difflib.get_close_matches(name, declared, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else f"; it has: {', '.join(declared) or 'none'}"
        raise PatternError(f"a pattern asks for the attribute '{name}' of {node.name}, which has none such{hint}")
    actual = node.attribute(name)
    if callable(wanted):
        return Predicate.of(wanted, f"has_attr({name})").declines(actual)
    if isinstance(wanted, (set, frozenset)):
        if _normalize(actual) in {_normalize(value) for value in wanted}:
            return None
        return decline(f"expected {name} to be one of {sorted(map(str, wanted))}", found=_normalize(actual))
    return (
        None
        if _normalize(actual) == _normalize(wanted)
        else decline(f"expected {name} = {wanted}", found=_normalize(actual))
    )


def _normalize(value: object) -> object:
    """Normalize a value for comparison: lists to tuples, element types and dims to text."""
    if isinstance(value, (list, tuple)):
        return tuple(_normalize(member) for member in value)
    if isinstance(value, DType):
        return value.name
    return str(value) if isinstance(value, SymbolicDim) else value


def same_shape(labels: Sequence[str]) -> Callable[[Match], bool | Decline]:
    def check(match: Match) -> bool | Decline:
        shapes = {label: match[label].type for label in labels if label in match}
        first = next(iter(shapes.values()), None)
        for label, kind in shapes.items():
            if kind is None or first is None or kind.shape != first.shape:
                return decline(f"'{label}' has another shape", **{k: _text(v.shape) for k, v in shapes.items() if v})
        return True

    return check


def argument_name(value: BlockValue) -> str:
    """Return the user's name of a function argument, or its index."""
    mlir = value.mlir
    function = mlir.owner.owner.operation if isinstance(mlir, ir.BlockArgument) else None
    if function is not None and function.name == "func.func" and "arg_attrs" in function.attributes:
        entry = list(function.attributes["arg_attrs"])[value.number]
        if "relax.name" in entry:
            return ir.StringAttr(entry["relax.name"]).value
    return f"%{value.number}"
