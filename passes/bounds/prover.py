"""Proofs that index expressions are not negative, from bounds of their variables and from facts.

An index of a kernel is an `IndexExpr` over numbered variables: loops, lanes of vectors, and values of which only
bounds are known, such as `min(i, n - 9)` or a value that was loaded. A goal `expression >= 0` is reduced by eliminating
its variables, the last one first, each by a bound that depends on earlier ones only. What is left is a dim, which the
algebra of dims decides. A fact is an expression that is not negative where a guard or a loop says so; it serves as one
more bound of its variables.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.index_expr import Atom, FloorDiv, IndexExpr, loop_index
from mirlo.passes.bounds.accesses import MAX_KERNEL_STEPS
from mirlo.passes.bounds.dim_proofs import decided_dims, prove_dim, weaker
from mirlo.runtime.records import dataclass

Facts = tuple[IndexExpr, ...]
"""Expressions that are not negative."""
MAX_STEPS = 300
"""The most eliminations of a proof: the search is exponential, and proofs that exist need a tenth of that."""
DIM_STEPS = 10
"""Number of proof steps about a dim that take as long as an elimination."""
BOUND_TERMS = 50
"""Number of terms that the algebra of dims processes in that time."""
MAX_REFINEMENTS = 24
"""The most facts that are derived from one."""


@dataclass(frozen=True)
class Case:
    """A value that a variable may have, and the facts that hold then."""

    value: IndexExpr
    facts: Facts = ()


@dataclass
class IndexVariable:
    """The facts about a variable: lower and upper bounds, all of which hold, and cases, one of which holds."""

    lows: tuple[IndexExpr, ...] = ()
    highs: tuple[IndexExpr, ...] = ()
    """Upper bounds, which it may reach."""
    cases: tuple[Case, ...] = ()
    choice: object = None
    """What decides between the cases: variables of one choice have the same case."""
    low: int | None = None
    high: int | None = None
    from_data: bool = False
    """Whether it depends on elements of a buffer."""
    unwrapped: IndexExpr | None = None
    """Its value where the arithmetic that computes it does not overflow; None if that is not known."""
    operands: tuple[IndexExpr, ...] = ()
    """What it is computed from, where that bounds it: it has a bound if these have."""
    is_free: bool = False
    """Whether only its type bounds it."""

    def has_choice_of(self, other: IndexVariable) -> bool:
        """Return whether the same choice decides between the cases of both."""
        if self.choice is None or other.choice is None:  # an SSA value cannot be compared with None
            return False
        return self.choice == other.choice


class Prover:
    """The variables of one kernel, and proofs about them."""

    def __init__(self, budget: int = MAX_KERNEL_STEPS) -> None:
        self.variables: list[IndexVariable] = []
        self._steps = 0
        self.budget = budget
        """The eliminations that are left for this kernel."""
        self._quotients: dict[FloorDiv, tuple[int | None, int | None]] = {}
        self._proofs: dict[Facts, dict[IndexExpr, bool]] = {}
        """Goals that were tried with facts before."""
        self._facts: Facts = ()
        self._proofs_here = self._proofs.setdefault((), {})
        """Those that were tried with the facts of the last one."""
        self._refined: dict[tuple[Facts, Facts], Facts] = {}

    def variable(
        self,
        lows: Iterable[IndexExpr] = (),
        highs: Iterable[IndexExpr] = (),
        cases: Sequence[Case] = (),
        from_data: bool = False,
        choice: object = None,
        unwrapped: IndexExpr | None = None,
        operands: tuple[IndexExpr, ...] = (),
        is_free: bool = False,
    ) -> IndexExpr:
        """Return the expression of a new variable with these bounds, of variables that exist."""
        # Those without variables first: a proof from them needs no search.
        low_bounds, high_bounds = (tuple(sorted(bounds, key=lambda each: len(each.terms))) for bounds in (lows, highs))
        known = IndexVariable(
            low_bounds, high_bounds, tuple(cases), choice, None, None, from_data, unwrapped, operands, is_free
        )
        least = [bound for bound in (self.interval(low)[0] for low in known.lows) if bound is not None]
        most = [bound for bound in (self.interval(high)[1] for high in known.highs) if bound is not None]
        if known.cases:
            of_cases = [self.interval(case.value) for case in known.cases]
            least += _all_known([low for low, _ in of_cases], min)
            most += _all_known([high for _, high in of_cases], max)
        known.low, known.high = max(least, default=None), min(most, default=None)
        self.variables.append(known)
        return loop_index(len(self.variables) - 1)

    def known(self, expression: IndexExpr) -> IndexVariable | None:
        """Return the variable that an expression consists of, or None."""
        if len(expression.terms) != 1 or expression.constant != 0:
            return None
        ((atom, factor),) = expression.terms.items()
        return self.variables[atom] if isinstance(atom, int) and factor == 1 else None

    def only_case(self, expression: IndexExpr, fact: IndexExpr) -> IndexExpr:
        """Return an expression, or the value of its only case where a fact about it holds."""
        known = self.known(expression)
        if known is None or not known.cases:
            return expression
        (atom,) = expression.terms
        factor = fact.terms.get(atom, 0)
        rest = fact - expression * factor
        possible = [case for case in known.cases if not self._is_negative(rest + case.value * factor)]
        return (
            self.only_case(possible[0].value, rest + possible[0].value * factor) if len(possible) == 1 else expression
        )

    def is_from_data(self, expression: IndexExpr) -> bool:
        """Return whether an expression depends on elements of a buffer."""
        variables = self.variables
        return any(
            variables[atom].from_data if isinstance(atom, int) else self.is_from_data(atom.inner)
            for atom in expression.terms
        )

    def interval(self, expression: IndexExpr) -> tuple[int | None, int | None]:
        """Return the least and the greatest value as integers, None where they are not known as such."""
        constant = expression.constant
        low, high = (constant, constant) if isinstance(constant, int) else self._interval_of_symbols(constant)
        for atom, factor in expression.terms.items():
            if low is None and high is None:
                return None, None
            part = self._interval_of_atom(atom)
            low, high = _add_interval(low, high, part, factor)
        return low, high

    def _interval_of_symbols(self, dim: SymbolicDim) -> tuple[int | None, int | None]:
        # A symbol may be 0, and has no upper bound.
        constant = dict(dim.terms).get((), 0)
        if self._is_nonnegative(dim - constant):
            return constant, None
        return None, (constant if self._is_nonnegative(constant - dim) else None)

    def _interval_of_atom(self, atom: Atom) -> tuple[int | None, int | None]:
        if isinstance(atom, int):
            variable = self.variables[atom]
            return variable.low, variable.high
        assert isinstance(atom, FloorDiv), "the variables of kernels are numbered"
        known = self._quotients.get(atom)
        if known is None:
            known = self._interval_of_quotient(atom)
            self._quotients[atom] = known
        return known

    def _interval_of_quotient(self, atom: FloorDiv) -> tuple[int | None, int | None]:
        low, high = self.interval(atom.inner)
        if low is None and self.is_nonnegative(atom.inner):
            low = 0
        if not isinstance(atom.divisor, int):
            return (0 if low is not None and low >= 0 else None), None
        return (None if low is None else low // atom.divisor), (None if high is None else high // atom.divisor)

    # ---------------------------------------------------------------------------------------------------------- proofs

    def is_nonnegative(self, goal: IndexExpr, facts: Facts = ()) -> bool:
        """Return whether an expression is proven not to be negative where the facts hold."""
        low, high = self.interval(goal)
        if low is not None and low >= 0:
            return True
        outer, self._steps = self._steps, min(MAX_STEPS, self.budget)
        result = self._prove_within(goal, high, facts)
        self._steps = outer
        return result

    def _take(self, steps: int) -> None:
        """Count eliminations, and work that takes as long as some of them."""
        self.budget -= min(steps, max(self._steps, 0))
        self._steps -= steps

    def _is_nonnegative_dim(self, goal: Dim, facts: tuple[Dim, ...], depth: int = 3) -> bool:
        holds, steps = prove_dim(goal, facts, depth)
        self._take(steps // DIM_STEPS)
        return holds

    def _is_nonnegative(self, dim: Dim) -> bool:
        if isinstance(dim, int):
            return dim >= 0
        holds, terms = D.search_bounds(dim, 1)
        self._take(terms // BOUND_TERMS)
        return holds

    def _prove(self, goal: IndexExpr, facts: Facts) -> bool:
        low, high = self.interval(goal)
        return (low is not None and low >= 0) or self._prove_within(goal, high, facts)

    def _prove_within(self, goal: IndexExpr, high: int | None, facts: Facts) -> bool:
        """Prove a goal whose interval, with this greatest value, includes negative numbers."""
        if facts is not self._facts:  # hashed only then: most goals have the facts of the one before
            self._facts, self._proofs_here = facts, self._proofs.setdefault(facts, {})
        proofs = self._proofs_here
        known = proofs.get(goal)
        if known is None:
            known = self._prove_new(goal, high, facts)
            if known or self._steps >= 0:
                proofs[goal] = known
        return known

    def _prove_new(self, goal: IndexExpr, high: int | None, facts: Facts) -> bool:
        self._take(1)
        if self._steps < 0 or (high is not None and high < 0 and not facts):
            return False
        if not goal.terms:
            dims = dims_of(facts)
            return self._is_nonnegative_dim(goal.constant, dims) or self._is_nonnegative_dim(
                _rounded(goal).constant, dims
            )
        goal = _rounded(goal)
        atom = next(iter(goal.terms)) if len(goal.terms) == 1 else max(goal.terms, key=_order)
        factor = goal.terms[atom]
        dims = () if isinstance(factor, int) else dims_of(facts)
        positive = self._is_nonnegative_dim(factor, dims, 1)
        if not positive and not self._is_nonnegative_dim(-factor, dims, 1):
            return False
        rest = IndexExpr({t: c for t, c in goal.terms.items() if t != atom}, goal.constant)
        if positive and self._is_nonnegative_here(atom, rest, facts) and self._prove(rest, facts):
            return True
        limit = self._limit(atom, positive, facts)
        if limit is not None and self._prove(rest + factor * limit, facts):
            return True
        eliminated = list(self._eliminate(rest, atom, factor, positive, limit))
        by_fact = list(self._eliminate_by_fact(goal, atom, positive, facts))
        # What is seen at once, before what needs a search: that may take all steps.
        if any(self.is_certain(simpler) for simpler in (*eliminated, *(simpler for simpler, _ in by_fact))):
            return True
        if any(self._prove(simpler, facts) for simpler in eliminated):
            return True
        if any(self._prove(simpler, others) for simpler, others in by_fact):
            return True
        return self._prove_by_cases(rest, atom, factor, facts)

    def _is_nonnegative_here(self, atom: Atom, rest: IndexExpr, facts: Facts) -> bool:
        """Return whether a variable, which may be negative elsewhere, is not where the facts hold."""
        if not isinstance(atom, int) or not facts or (not rest.terms and rest.constant == 0):
            return False
        variable = self.variables[atom]
        return bool(variable.cases) and self._prove(loop_index(atom), facts)

    def _limit(self, atom: Atom, positive: bool, facts: Facts) -> int | None:
        """Return the tightest number that facts of a variable alone limit it by, if its own interval is wider."""
        if not isinstance(atom, int):
            return None
        own = self.variables[atom]
        limit = start = own.low if positive else own.high
        sign = 1 if positive else -1
        for fact in facts:
            count, constant = fact.terms.get(atom), fact.constant
            if len(fact.terms) == 1 and isinstance(count, int) and isinstance(constant, int) and count * sign > 0:
                least = sign * -(constant // abs(count))
                limit = least if limit is None else max(limit, least) if positive else min(limit, least)
        return limit if limit != start else None

    def _eliminate(
        self, rest: IndexExpr, atom: Atom, factor: Dim, positive: bool, limit: int | None
    ) -> Iterable[IndexExpr]:
        """Yield lower bounds, or multiples of these, of `rest + factor * atom` without the atom.

        The number at an end of its interval is none of them where facts limit it further.
        """
        if isinstance(atom, int):
            known = self.variables[atom]
            for bound in known.lows if positive else known.highs:
                yield rest + bound * factor
            constant = known.low if positive else known.high
        else:
            assert isinstance(atom, FloorDiv), "the variables of kernels are numbered"
            constant = self._interval_of_atom(atom)[0 if positive else 1]
            if self._is_nonnegative(atom.divisor - 1):
                dividend = atom.inner - (atom.divisor - 1) if positive else atom.inner
                yield rest * atom.divisor + dividend * factor
        if constant is not None and limit is None:
            yield rest + factor * constant

    def _eliminate_by_fact(
        self, goal: IndexExpr, atom: Atom, positive: bool, facts: Facts
    ) -> Iterable[tuple[IndexExpr, Facts]]:
        """Yield goals without an atom by a fact in which it has the same sign, and the others: each serves once."""
        factor = goal.terms[atom]
        for position, fact in enumerate(facts):
            other = fact.terms.get(atom)
            if other is None or not self._is_nonnegative(other if positive else -other):
                continue
            simpler = goal * (other if positive else -other) - fact * (factor if positive else -factor)
            yield simpler, facts[:position] + facts[position + 1 :]

    def _prove_by_cases(self, rest: IndexExpr, atom: Atom, factor: Dim, facts: Facts) -> bool:
        if not isinstance(atom, int) or not self.variables[atom].cases:
            return False
        variable = self.variables[atom]
        for position, case in enumerate(variable.cases):
            others = rest
            for term, count in rest.terms.items():
                other = self.variables[term] if isinstance(term, int) else None
                if other is not None and other.has_choice_of(variable):
                    others = others + (other.cases[position].value - loop_index(term)) * count
            simpler = others + case.value * factor
            # Without the facts of a case, goals with other cases share the proof: a size seldom needs them.
            if case.value.is_constant and self._prove(simpler, facts):
                continue
            if not self._prove(simpler, self.refine(case.facts, facts)):
                return False
        return True

    def tops(self, expression: IndexExpr) -> list[IndexExpr]:
        """Return upper bounds that depend on sizes only, those found without a search."""
        if not expression.terms:
            return [expression]
        atom = max(expression.terms, key=_order)
        factor = expression.terms[atom]
        if not isinstance(atom, int) or not isinstance(factor, int):
            return []
        known = self.variables[atom]
        rest = expression - loop_index(atom) * factor
        if known.cases and not (known.highs if factor > 0 else known.lows):
            return [top for case in known.cases for top in self.tops(rest + case.value * factor)]
        constant = known.high if factor > 0 else known.low
        bounds = known.highs if factor > 0 else known.lows
        tops = [top for bound in bounds[:2] for top in self.tops(rest + bound * factor)]
        return tops if tops or constant is None else self.tops(rest + constant * factor)

    def is_certain(self, goal: IndexExpr) -> bool:
        """Return whether an expression is seen not to be negative, without a search."""
        low, _ = self.interval(goal)
        return low is not None and low >= 0

    # ----------------------------------------------------------------------------------------------------------- facts

    def refine(self, facts: Iterable[IndexExpr], known: Facts = ()) -> Facts:
        """Return known facts and new ones, with the consequences of these for the cases of their variables."""
        key = tuple(facts), known
        refined = self._refined.get(key)
        if refined is None:
            refined = self._refined[key] = self._refine(*key)
        return refined

    def _refine(self, facts: Facts, known: Facts) -> Facts:
        result = dict.fromkeys(known)
        waiting = deque(facts)
        for _ in range(MAX_REFINEMENTS):
            if not waiting:
                break
            fact = _rounded(waiting.popleft())  # what follows at once before what follows from that
            if fact in result:
                continue
            low, _ = self.interval(fact)
            if low is not None and low >= 0:
                continue
            result[fact] = None
            if not fact.terms:
                waiting += [IndexExpr({}, dim) for dim in weaker(fact.constant)]
            for atom, factor in fact.terms.items():
                if isinstance(atom, int):
                    waiting += self._consequences(fact, atom, factor)
        for fact in map(_rounded, facts):  # what follows from some of them may have taken all steps
            if not self.is_certain(fact):
                result.setdefault(fact)
        return _with_decided(tuple(result))

    def _consequences(self, fact: IndexExpr, atom: int, factor: Dim) -> list[IndexExpr]:
        """Return the consequences of a fact for one of its variables: weaker facts, those of the only case left."""
        known = self.variables[atom]
        rest = IndexExpr({t: c for t, c in fact.terms.items() if t != atom}, fact.constant)
        goals: list[IndexExpr] = []
        if known.cases:
            possible = [case for case in known.cases if not self._is_negative(rest + case.value * factor)]
            if len(possible) == 1:
                value = loop_index(atom)
                goals += [*possible[0].facts, possible[0].value - value, value - possible[0].value]
                goals += [rest + possible[0].value * factor]
        if self._is_nonnegative(factor):
            goals += [rest + high * factor for high in known.highs]
        elif self._is_nonnegative(-factor):
            goals += [rest + low * factor for low in known.lows]
        return goals

    def _is_negative(self, expression: IndexExpr) -> bool:
        _, high = self.interval(expression)
        return high is not None and high < 0


def _rounded(expression: IndexExpr) -> IndexExpr:
    """Return an equivalent expression, divided by the common divisor of its coefficients."""
    constant, rest = _split_constant(expression.constant)
    shared = rest
    for factor in expression.terms.values():
        parts = (factor,) if isinstance(factor, int) else (part for _, part in factor.terms)
        shared = math.gcd(shared, *parts)
        if shared == 1:
            return expression
    if shared <= 1:
        return expression
    terms = {atom: _divided(factor, shared) for atom, factor in expression.terms.items()}
    return IndexExpr(terms, _divided(expression.constant - constant, shared) + constant // shared)


def _split_constant(dim: Dim) -> tuple[int, int]:
    """Return the constant of a dim, and the common divisor of the coefficients of its other terms."""
    if isinstance(dim, int):
        return dim, 0
    terms = dict(dim.terms)
    constant = terms.pop((), 0)
    return constant, math.gcd(*terms.values())


def _divided(dim: Dim, shared: int) -> Dim:
    return D.apply("floordiv", dim, shared)


def _order(atom: Atom) -> float:
    """Return the rank in which an atom is eliminated: later definitions first, quotients before their dividends."""
    if isinstance(atom, int):
        return atom
    assert isinstance(atom, FloorDiv), "the variables of kernels are numbered"
    return max(map(_order, atom.inner.terms), default=0) + 0.5


def _all_known(bounds: list[int | None], choose: object) -> list[int]:
    """Return the least or the greatest of some bounds if all are known."""
    known = [bound for bound in bounds if bound is not None]
    assert callable(choose)
    return [choose(known)] if known and len(known) == len(bounds) else []


def _add_interval(
    low: int | None, high: int | None, part: tuple[int | None, int | None], factor: Dim
) -> tuple[int | None, int | None]:
    """Return the interval of a sum with a multiple of a part."""
    first, last = part
    if isinstance(factor, int):
        if factor < 0:
            first, last = last, first
        low = None if low is None or first is None else low + first * factor
        return low, (None if high is None or last is None else high + last * factor)
    if first == 0 == last:
        return low, high
    is_positive = first is not None and first >= 0
    if is_positive and D.is_nonnegative(factor, 0):
        return low, None
    return None, (high if is_positive and D.is_nonnegative(-factor, 0) else None)


def dims_of(facts: Facts) -> tuple[Dim, ...]:
    """Return the facts about sizes alone."""
    return tuple(fact.constant for fact in facts if not fact.terms)


def _with_decided(facts: Facts) -> Facts:
    """Return facts about sizes, in which minima and maxima that the other facts decide are replaced."""
    decided = (IndexExpr({}, dim) for dim in decided_dims(dims_of(facts)))
    return (*facts, *(fact for fact in decided if fact not in facts))
