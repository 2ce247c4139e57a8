"""Constants whose elements are not known: those of a layer that stands for others, of which each has its own.

They are `relax.constant` with the name of a parameter that is not in the store. Passes may compute constants from them
(`derive`), but nothing may depend on their elements: `session.options[UNKNOWN]` records an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.create import Constant
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

UNKNOWN = "unknown-constants"
"""The option of a session with its `UnknownConstants`."""


@dataclass(frozen=True)
class DerivedConstant:
    """A constant that is computed from others: one result of an operator."""

    compute: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray] | None]
    key: object
    """What is equal for operators that compute the same."""
    operands: tuple[str | ir.Attribute, ...]
    """The constants that the operator reads: parameters, or their elements."""
    kinds: tuple[TensorType, ...]
    """Their types."""
    result: int
    name: str
    """The operator, for names."""


@dataclass
class UnknownConstants:
    """The constants of a compilation whose elements are not known."""

    layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The layer of each constant, and its number there."""
    derived: dict[str, DerivedConstant] = field(default_factory=dict)
    """How those are computed that passes made."""
    asked: str | None = None
    """A constant whose elements a pass wanted to know."""

    def __contains__(self, name: object) -> bool:
        return name in self.layers

    def derive(self, constant: DerivedConstant, kind: TensorType) -> ir.Value:
        """Emit a constant that is computed once the elements of others are known."""
        layer = next(self.layers[each][0] for each in constant.operands if isinstance(each, str) and each in self)
        name = f"unknown.{len(self.layers)}"
        self.layers[name] = layer, -1
        self.derived[name] = constant
        result: ir.Value = Constant.make(param=name, result_types=[kind])
        return result


def note_unknown(name: str, session: Session) -> None:
    """Record that a pass asked for the elements of a constant, if they are not known."""
    unknown: UnknownConstants | None = session.options.get(UNKNOWN)
    if unknown is not None and name in unknown:
        unknown.asked = name


def unknown_constants(session: Session) -> UnknownConstants | None:
    """Return the constants of a compilation whose elements are not known, if there are any."""
    result: UnknownConstants | None = session.options.get(UNKNOWN)
    return result
