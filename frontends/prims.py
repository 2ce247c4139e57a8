"""Prim functions of users as operators of a model: specialized for the types of each use, inserted once each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import UNKNOWN
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.view import PrimTemplate


class PrimParameter(Protocol):
    """A buffer parameter of a prim function."""

    @property
    def is_output(self) -> bool: ...

    @property
    def shape(self) -> Sequence[object]: ...


class SpecializablePrim(PrimTemplate, Protocol):
    """A prim function of a user that is an operator of models."""

    @property
    def numbers(self) -> tuple[str, ...]: ...

    @property
    def parameters(self) -> Sequence[PrimParameter]: ...


class SpecializedPrims:
    """The functions that a prim function was specialized to, by import."""

    def __init__(self, prim_func: SpecializablePrim) -> None:
        self.prim_func = prim_func
        self.made: WeakKeyDictionary[object, dict[tuple[object, ...], tuple[str, list[TensorType]]]]
        self.made = WeakKeyDictionary()

    def specialize(
        self,
        builder: object,
        types: Sequence[TensorType],
        outputs: Sequence[TensorType] | None,
        attributes: Mapping[str, object],
    ) -> tuple[str, list[TensorType]]:
        """Return the symbol of the function for these types and attributes, inserted once, and its result types.

        `builder` is the import that uses it. Raises ValueError for types without sizes.
        """
        prim_func = self.prim_func
        for i, type_ in enumerate(types):
            if any(dim is UNKNOWN for dim in type_.shape):
                raise ValueError(
                    f"input #{i} is {type_}: the prim function '{prim_func.name}' needs numbers or symbols for all "
                    "dims; give the shapes of the model's inputs"
                )
        numbers = {name: attributes[name] for name in prim_func.numbers if name in attributes}
        functions = self.made.setdefault(builder, {})
        key = (tuple(types), tuple(outputs or ()), tuple(sorted(numbers.items())))
        if key not in functions:
            function, results = prim_func.specialize(types, outputs, prim_func.name, numbers)
            functions[key] = (_insert(function), results)
        return functions[key]


def _insert(function: ir.OpView) -> str:
    """Add the function to the module under construction and return its name."""
    owner = ir.InsertionPoint.current.block.owner.operation
    while owner.name != "builtin.module" and owner.parent is not None:
        owner = owner.parent.operation
    owner.regions[0].blocks[0].append(function.operation)
    return ir.StringAttr(ir.SymbolTable(owner).insert(function.operation)).value
