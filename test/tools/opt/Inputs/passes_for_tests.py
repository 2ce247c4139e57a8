"""Passes that fail in each way that a pass can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class Refuse(Pass):
    """Refuse functions of a name, with an error at them."""

    name = "test-refuse"
    anchor = "func.func"
    function: str = option("f", "name of the functions")

    def run(self, op: Any, session: Session) -> None:
        if op.name.value == self.function:
            raise PassError(f"does not like the function '{self.function}'", op.location)


@register_pass
@dataclass(frozen=True)
class Crash(Pass):
    """Raise an unexpected exception."""

    name = "test-crash"

    def run(self, op: Any, session: Session) -> None:
        raise ZeroDivisionError("too little of it")


@register_pass
@dataclass(frozen=True)
class BreakIR(Pass):
    """Leave IR that does not verify."""

    name = "test-break-ir"
    anchor = "func.func"

    def run(self, op: Any, session: Session) -> None:
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([], []))


@register_pass
@dataclass(frozen=True)
class Chat(Pass):
    """Report remarks to the user.

    A remark at every function, and a warning without a place.
    """

    name = "test-chat"
    loud: bool = option(False, "whether to warn, too")
    level: int = option(3, "a number")
    ratio: float = option(0.5, "a fraction")
    words: tuple[str, ...] = option((), "what to say of each function")
    sizes: tuple[int, ...] = option((1, 2), "numbers")
    prefix: str | None = option(None, "what comes first")

    def run(self, op: Any, session: Session) -> None:
        for function in op.body.operations:
            session.remark(" ".join([self.prefix or "saw", *self.words]), function.location)
        if self.loud:
            session.warning(f"level {self.level}, ratio {self.ratio}, sizes {self.sizes}")


@register_pass
@dataclass(frozen=True)
class Rename(Pass):
    """Put a prefix before the names of functions."""

    name = "test-rename"
    anchor = "func.func"
    prefix: str = option("x_", "the prefix")

    def run(self, op: Any, session: Session) -> None:
        op.attributes["sym_name"] = ir.StringAttr.get(self.prefix + op.name.value)


@register_pass
@dataclass(frozen=True)
class AddParameter(Pass):
    """Put an array into the parameter store."""

    name = "test-add-parameter"
    parameter: str = option("made", "its name")
    value: float = option(1.0, "what it is full of")

    def run(self, op: Any, session: Session) -> None:
        import numpy as np

        session.params.add(self.parameter, np.full((2, 2), self.value, np.float32))


@register_pass
@dataclass(frozen=True)
class ListParameters(Pass):
    """Remark on each parameter of the store."""

    name = "test-list-parameters"

    def run(self, op: Any, session: Session) -> None:
        for parameter in session.params:
            session.remark(f"parameter {parameter} sums to {session.params.get(parameter).sum()}")
