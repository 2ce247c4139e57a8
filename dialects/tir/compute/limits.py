"""Whether an index is limited: on both sides by something other than the data that it comes from.

`TensorExpr.at` accepts no index that is not. A limit need not be that of the axis: the pass `verify-bounds` proves the
access, or has it tested at run time. An index for which neither is possible is found here, in the rule that computes
it.
"""

from __future__ import annotations

from typing import NamedTuple

from mirlo.dialects.tir.compute.expr import Expr


class IndexLimits(NamedTuple):
    """Whether a value has a lower and an upper limit that data do not decide."""

    low: bool
    high: bool


NONE, BOTH = IndexLimits(False, False), IndexLimits(True, True)
LARGEST_CODE_BITS = 8
"""Bits of integers whose range is a limit: tables for all their values are common."""
_KEEPS_ORDER = ("floor", "ceil", "trunc", "roundeven")
"""Intrinsics of which the result grows with the operand."""


class ListedPosition(Expr):
    """A position that a constant holds."""

    __slots__ = ()


def is_limited(index: Expr) -> bool:
    """Return whether an index is computed from axes and sizes, or limited on both sides."""
    return _Analysis().limits(index) == BOTH


class _Analysis:
    def __init__(self) -> None:
        self._known: dict[int, IndexLimits] = {}
        self._by_data: dict[int, bool] = {}

    def limits(self, expr: Expr) -> IndexLimits:
        limits = self._known.get(id(expr))
        if limits is None:
            limits = self._known[id(expr)] = self._limits(expr) if self._depends_on_data(expr) else BOTH
        return limits

    def _depends_on_data(self, expr: Expr) -> bool:
        depends = self._by_data.get(id(expr))
        if depends is None:
            is_data = expr.op in ("load", "acc") and not isinstance(expr, ListedPosition)
            depends = is_data or any([self._depends_on_data(arg) for arg in expr.args])
            self._by_data[id(expr)] = depends
        return depends

    def _limits(self, expr: Expr) -> IndexLimits:
        """Return the limits of a value that depends on data."""
        own = _of_type(expr)
        if own == BOTH:
            return BOTH
        of_operation = self._of_operation(expr)
        return IndexLimits(own.low or of_operation.low, own.high or of_operation.high)

    def _of_operation(self, expr: Expr) -> IndexLimits:
        if expr.op in ("load", "acc", "bitcast"):
            return NONE
        if expr.op == "select":
            return self._of_select(*expr.args)
        args = [self.limits(arg) for arg in expr.args]
        if expr.op == "cast":
            return self._of_cast(expr, args[0])
        if all(each == BOTH for each in args):
            return BOTH
        if expr.op == "intrinsic":
            return args[0] if expr.data in _KEEPS_ORDER else NONE
        if expr.op == "neg":
            return IndexLimits(args[0].high, args[0].low)
        if len(args) != 2:
            return NONE
        return _of_binary(expr, *args)

    def _of_cast(self, expr: Expr, limits: IndexLimits) -> IndexLimits:
        source = expr.args[0].dtype
        if source.is_float or source.is_bool or expr.dtype.is_float:
            return limits
        # A value that is out of the range of the new type wraps.
        is_signed_then_not = expr.dtype.is_unsigned and not source.is_unsigned
        keeps_all = expr.dtype.bits > source.bits or (
            expr.dtype.bits == source.bits and expr.dtype.is_unsigned == source.is_unsigned
        )
        return limits if limits == BOTH or (keeps_all and not is_signed_then_not) else NONE

    def _of_select(self, condition: Expr, yes: Expr, no: Expr) -> IndexLimits:
        """Return the limits of a choice; what the condition compares the first value with limits it."""
        one, other = self.limits(yes), self.limits(no)
        for test in _conjuncts(condition):
            if test.op == "cmp":
                one = self._with_test(one, test, yes)
        return IndexLimits(one.low and other.low, one.high and other.high)

    def _with_test(self, limits: IndexLimits, test: Expr, value: Expr) -> IndexLimits:
        left, right = test.args
        predicate = str(test.data)
        if _same(right, value):
            left, right = right, left
            predicate = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(predicate, predicate)
        if not _same(left, value):
            return limits
        bound = self.limits(right)
        low = predicate in ("gt", "ge", "eq") and bound.low
        high = predicate in ("lt", "le", "eq") and bound.high
        return IndexLimits(limits.low or low, limits.high or high)


def _of_type(expr: Expr) -> IndexLimits:
    """Return the limits that the range of a type gives."""
    if expr.dtype.is_bool or (expr.dtype.is_integer and expr.dtype.bits <= LARGEST_CODE_BITS):
        return BOTH
    return IndexLimits(expr.dtype.is_unsigned, False)


def _of_binary(expr: Expr, left: IndexLimits, right: IndexLimits) -> IndexLimits:
    if expr.op == "add":
        return IndexLimits(left.low and right.low, left.high and right.high)
    if expr.op == "sub":
        return IndexLimits(left.low and right.high, left.high and right.low)
    if expr.op == "min":
        return IndexLimits(left.low and right.low, left.high or right.high)
    if expr.op == "max":
        return IndexLimits(left.low or right.low, left.high and right.high)
    divisor = expr.args[1]
    if expr.op == "mod":
        return right
    if expr.op == "and":
        mask = next((arg for arg in expr.args if arg.op == "const" and arg.data >= 0), None)
        return BOTH if mask is not None else NONE
    if expr.op in ("mul", "div", "floordiv", "shl", "shr") and divisor.op in ("const", "size"):
        is_negative = divisor.op == "const" and divisor.data < 0
        return IndexLimits(left.high, left.low) if is_negative else left
    return NONE


def _conjuncts(condition: Expr) -> list[Expr]:
    """Return the conditions that all hold if this one does."""
    if condition.op != "and":
        return [condition]
    return [each for arg in condition.args for each in _conjuncts(arg)]


def _same(one: Expr, other: Expr) -> bool:
    """Return whether two expressions are the same computation, as far as a few steps show."""
    if one is other:
        return True
    is_alike = one.op == other.op and one.dtype is other.dtype and one.data == other.data
    if not is_alike or len(one.args) != len(other.args):
        return False
    return all(a is b for a, b in zip(one.args, other.args, strict=True))
