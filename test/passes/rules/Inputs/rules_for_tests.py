"""Rules that accept, decline and misbehave, and passes that use rules given to one compilation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirlo.extend.ops import DialectOp, compute, elementwise, operand, register_dialect, result
from mirlo.extend.rules import LEGALIZE, decline, legalize
from mirlo.extend.target import Pass, option, register_pass
from mirlo.passes.legalize.legalize import Legalize

DIALECT = register_dialect("test")


class Declined(DialectOp, name="declined", dialect=DIALECT):
    """Every rule declines it."""

    x, output = operand(), result()
    infer = staticmethod(lambda x: x)


class Orphan(DialectOp, name="orphan", dialect=DIALECT):
    """No rule is registered for it."""

    x, output = operand(), result()
    infer = staticmethod(lambda x: x)


class Endless(DialectOp, name="endless", dialect=DIALECT):
    """Its rule makes another one."""

    x, output = operand(), result()
    infer = staticmethod(lambda x: x)


class Chain(DialectOp, name="chain", dialect=DIALECT):
    """Its rules accept in turn, by the size of the operand."""

    x, output = operand(), result()
    infer = staticmethod(lambda x: x)


@legalize("test.declined", target="llvm", priority=5)
def first(op: Any, b: Any) -> Any:
    """Declines with a fact."""
    return decline("the operand must be a scalar", rank=len(op.x.type.shape))


@legalize("test.declined")
def second(op: Any, b: Any) -> Any:
    """Declines without facts."""
    return decline("it never applies")


@legalize("test.endless")
def endless(op: Any, b: Any) -> Any:
    return b.emit(Endless, op.x)


def _add(number: float) -> Any:
    def rule(op: Any, b: Any) -> Any:
        return elementwise(op, b, [op.x], lambda x: x + number)

    return rule


def only_for(size: int, number: float) -> Any:
    """Return a rule for operands of one size, which adds a number."""

    def sized(op: Any, b: Any) -> Any:
        return _add(number)(op, b) if op.x.type.shape[0] == size else decline("another size", wanted=size)

    return sized


LEGALIZE.table({"test.chain": only_for(1, 10.0)}, target="llvm", priority=2)
LEGALIZE.add("test.chain", "llvm", only_for(2, 20.0), priority=1, name="twos")
LEGALIZE.add("test.chain", "default", _add(30.0), name="any_size")


def of_loops(op: Any, b: Any) -> Any:
    """Statements, loops, a temporary buffer, a condition."""

    def body(loops: Any, x: Any, y: Any) -> None:
        held = loops.scratch(x.shape, "f32")
        loops.copy(x, held)
        for i in loops.range(*x.shape):
            with loops.if_(held[i] > 0.0):
                y[i] = held[i]
            with loops.else_():
                y[i] = compute.constant(0.0, x.dtype)

    return b.call_loops(body, op.x)


def of_operators(op: Any, b: Any) -> Any:
    """Another operator, which has rules in turn."""
    return b.emit(Chain, op.x)


def of_two_functions(op: Any, b: Any) -> Any:
    """Apply two functions, one after the other."""
    half = elementwise(op, b, [op.x], lambda x: x * 0.5)
    return b.call_prim(lambda p, x: p.compute(x.shape, lambda i: x[i] * 2.0, name="twice"), half)


def of_a_packed_function(op: Any, b: Any) -> Any:
    """Return a function of the run time."""
    return b.call_packed("test.relu", op.x)


def of_a_c_function(op: Any, b: Any) -> Any:
    """Return a C function on the buffers."""
    return b.call_loops(lambda loops, x, y: loops.call_extern("c_relu", x, y, *x.shape), op.x)


def of_a_c_number(op: Any, b: Any) -> Any:
    """Return a C function of numbers, which returns one."""

    def body(loops: Any, x: Any, y: Any) -> None:
        for i in loops.range(*x.shape):
            y[i] = loops.call_extern("c_scaled", x[i], 0.5, i, returns="f32")

    return b.call_loops(body, op.x)


def returns_nothing(op: Any, b: Any) -> Any:
    """Forgets to return."""
    b.call_prim(lambda p, x: p.compute(x.shape, lambda i: x[i]), op.x)


def returns_another_type(op: Any, b: Any) -> Any:
    return b.call_prim(lambda p, x: p.compute((3,), lambda i: x[0]), op.x)


def returns_two(op: Any, b: Any) -> Any:
    return op.x, op.x


def returns_text(op: Any, b: Any) -> Any:
    return "relu"


def returns_itself(op: Any, b: Any) -> Any:
    return op.output


def raises(op: Any, b: Any) -> Any:
    return {}["weight"]


def declines_late(op: Any, b: Any) -> Any:
    b.emit(Chain, op.x)
    return decline("changed its mind")


def declines(op: Any, b: Any) -> Any:
    return decline("not today")


GIVEN = {f.__name__: f for f in (
    of_loops, of_operators, of_two_functions, of_a_packed_function, of_a_c_function, of_a_c_number, returns_nothing,
    returns_another_type, returns_two, returns_text, returns_itself, raises, declines_late, declines,
)}  # fmt: skip


@register_pass
@dataclass(frozen=True)
class LegalizeWith(Pass):
    """Legalize with a rule that is given to this run, as `mirlo.compile(legalize=...)` does."""

    name = "test-legalize-with"
    rule: str = option("declines", "rules to give, in order, joined by '+'")
    operator: str = option("relax.relu", "the operator that they are for")
    strategy: str = option("", "the strategy to ask for, for test.chain")

    def run(self, op: Any, session: Any) -> None:
        given = [GIVEN[name] for name in self.rule.split("+")] if self.rule else []
        session.options["legalize"] = {self.operator: given} if given else {}
        session.options["strategies"] = {"test.chain": self.strategy} if self.strategy else None
        Legalize().run(op, session)
