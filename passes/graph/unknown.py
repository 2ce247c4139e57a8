"""Constants whose elements are not known: those of a layer that stands for others, of which each has its own.

They are `relax.constant` with the name of a parameter that is not in the store. Passes may compute constants from them
(`derive`), and decide by what holds for the elements in each layer (`decide`), but nothing else may depend on their
elements: `session.options[UNKNOWN]` records an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import read_dense
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.create import Constant
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session
    from mirlo.runtime.params import ParameterStore

UNKNOWN = "unknown-constants"
"""The option of a session with its `UnknownConstants`."""
Answer = TypeVar("Answer", bound=Hashable)
Contents = str | ir.Attribute
"""What a constant is: the name of a parameter, or its elements."""


class ConstantSource(NamedTuple):
    """How the elements of a constant are read, in any layout."""

    whole: Callable[[], np.ndarray]
    slice: Callable[[int], np.ndarray]
    """Returns a slice along the first dim."""


class DeferredElements(NamedTuple):
    """How the elements of a constant are computed later; see `ParameterStore.add_deferred`."""

    make: Callable[[], np.ndarray]
    fill: Callable[[np.ndarray], None] | None = None


@dataclass(frozen=True)
class LayerConstant:
    """A constant of a layer: the name of a parameter, or the elements; where the operation was."""

    param: str | None
    value: ir.Attribute | None
    location: ir.Location

    @property
    def contents(self) -> Contents:
        """Return the name of the parameter, or the elements."""
        contents = self.value if self.param is None else self.param
        assert contents is not None, "each constant has one of them"
        return contents


@dataclass(frozen=True)
class DerivedConstant:
    """A constant that is computed from others."""

    elements: Callable[[Sequence[ConstantSource]], np.ndarray | DeferredElements | None]
    """Returns its elements, or how they are computed later, or None where numpy does not define them."""
    key: Hashable
    """What is equal for constants that are computed in the same way."""
    operands: tuple[Contents, ...]
    """The constants that it is computed from."""
    kinds: tuple[TensorType, ...]
    """Their types."""
    name: str
    """The operator, for names."""


class UndefinedConstantError(Exception):
    """Numpy does not define a constant."""


@dataclass
class UnknownConstants:
    """The constants of a compilation whose elements are not known."""

    layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The layer of each constant, and its number there."""
    leaves: dict[int, list[LayerConstant]] = field(default_factory=dict)
    """The constants of each layer that the unknown ones stand for, by their numbers."""
    derived: dict[str, DerivedConstant] = field(default_factory=dict)
    """How those are computed that passes made."""
    asked: str | None = None
    """Why passes must run on all layers."""
    answers: dict[Hashable, Hashable] = field(default_factory=dict)
    """What passes decided, by the question and its constants."""

    def __contains__(self, name: object) -> bool:
        return name in self.layers

    def leaf(self, name: str, layer: int) -> LayerConstant:
        """Return what a constant that no pass made is in a layer."""
        return self.leaves[layer][self.layers[name][1]]

    def key_of(self, constant: Contents) -> Hashable:
        """Return what is equal for constants that are the same, or computed in the same way, in each layer."""
        if not isinstance(constant, str) or constant not in self:
            return constant
        derived = self.derived.get(constant)
        if derived is None:
            return self.layers[constant][1]
        return derived.key, tuple(map(self.key_of, derived.operands))

    def derive(self, constant: DerivedConstant, kind: TensorType) -> ir.Value:
        """Emit a constant that is computed once the elements of others are known."""
        layer = next(self.layers[each][0] for each in constant.operands if isinstance(each, str) and each in self)
        name = f"unknown.{len(self.layers)}"
        self.layers[name] = layer, -1
        self.derived[name] = constant
        result: ir.Value = Constant.make(param=name, result_types=[kind])
        return result

    def decide(
        self,
        question: Callable[[ConstantSource], Answer],
        key: Hashable,
        constant: str,
        kind: TensorType,
        params: ParameterStore,
    ) -> Answer:
        """Return the answer to a question about the elements of a constant; passes run on all layers if answers differ.

        `key` is equal for equal questions.
        """
        known = key, self.key_of(constant)
        if known not in self.answers:
            answers = (question(self.source(constant, layer, kind, params)) for layer in self.leaves)
            self.answers[known] = first = next(answers)
            if any(answer != first for answer in answers):
                self.asked = "constants of the layers lead a pass to different decisions"
        answer: Answer = self.answers[known]  # type: ignore[assignment]
        return answer

    def source(self, constant: Contents, layer: int, kind: TensorType, params: ParameterStore) -> ConstantSource:
        """Return how the elements of a constant are read in a layer."""
        if not isinstance(constant, str):
            array = read_dense(constant, kind)
            return ConstantSource(lambda: array, array.__getitem__)
        if constant not in self:
            return ConstantSource(params.reader(constant), params.slices(constant))
        if constant not in self.derived:
            return self.source(self.leaf(constant, layer).contents, layer, kind, params)
        elements = self.elements(constant, layer, params)
        if isinstance(elements, DeferredElements):
            make = elements.make
            return ConstantSource(make, lambda position: np.asarray(make()[position]))
        return ConstantSource(lambda: elements, elements.__getitem__)

    def elements(self, name: str, layer: int, params: ParameterStore) -> np.ndarray | DeferredElements:
        """Return the elements that a constant made by a pass has in a layer."""
        derived = self.derived[name]
        pairs = zip(derived.operands, derived.kinds, strict=True)
        elements = derived.elements([self.source(each, layer, kind, params) for each, kind in pairs])
        if elements is None:
            raise UndefinedConstantError(derived.name)
        return elements


def note_unknown(name: str, session: Session) -> None:
    """Record that a pass asked for the elements of a constant, if they are not known."""
    unknown: UnknownConstants | None = session.options.get(UNKNOWN)
    if unknown is not None and name in unknown:
        unknown.asked = "a pass reads constants of the layers"


def unknown_constants(session: Session) -> UnknownConstants | None:
    """Return the constants of a compilation whose elements are not known, if there are any."""
    result: UnknownConstants | None = session.options.get(UNKNOWN)
    return result
