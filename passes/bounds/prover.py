"""Proofs that index expressions are not negative, from bounds of their variables and from facts.

An index of a kernel is an `IndexExpr` over numbered variables: loops, lanes of vectors, and values of which only
bounds are known, such as `min(i, n - 9)` or a value that was loaded. A goal `expression >= 0` is reduced by eliminating
its variables, the last one first, each by a bound that depends on earlier ones only. What is left is a dim, which the
algebra of dims decides. A fact is an expression that is not negative where a guard or a loop says so; it serves as one
more bound of its variables.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, Monomial, SymbolicDim
from mirlo.dialects.core.index_expr import Atom, FloorDiv, IndexExpr, loop_index
from mirlo.runtime.records import dataclass

Facts = tuple[IndexExpr, ...]
"""Expressions that are not negative."""
MAX_STEPS = 300
"""The most eliminations of a proof: the search is exponential, and proofs that exist need a tenth of that."""
MAX_BOUNDS = 2
"""The most quotients of a dim that are replaced by their bounds."""
MAX_KERNEL_STEPS = 4_000
"""The most eliminations for all accesses of a kernel, a second."""
MAX_REFINEMENTS = 24
"""The most facts that are derived from one."""


@dataclass(frozen=True)
class Case:
    """A value that a variable may have, and what holds then."""

    value: IndexExpr
    facts: Facts = ()


@dataclass
class IndexVariable:
    """What is known of a variable: each lower and each upper bound holds, and one of the cases, if there are any."""

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
        low, high = (constant, constant) if isinstance(constant, int) else _interval_of_symbols(constant)
        for atom, factor in expression.terms.items():
            if low is None and high is None:
                return None, None
            part = self._interval_of_atom(atom)
            low, high = _add_interval(low, high, part, factor)
        return low, high

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
        budget = self._steps
        result = self._prove_within(goal, high, facts)
        self.budget -= budget - max(self._steps, 0)
        self._steps = outer
        return result

    def _prove(self, goal: IndexExpr, facts: Facts) -> bool:
        low, high = self.interval(goal)
        return (low is not None and low >= 0) or self._prove_within(goal, high, facts)

    def _prove_within(self, goal: IndexExpr, high: int | None, facts: Facts) -> bool:
        """Prove a goal that may be negative, as far as its interval shows, of which the greatest value is given."""
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
        self._steps -= 1
        if self._steps < 0 or (high is not None and high < 0 and not facts):
            return False
        if not goal.terms:
            dims = dims_of(facts)
            return _is_nonnegative_dim(goal.constant, dims) or _is_nonnegative_dim(_rounded(goal).constant, dims)
        goal = _rounded(goal)
        atom = next(iter(goal.terms)) if len(goal.terms) == 1 else max(goal.terms, key=_order)
        factor = goal.terms[atom]
        dims = () if isinstance(factor, int) else dims_of(facts)
        positive = _is_nonnegative_dim(factor, dims, 1)
        if not positive and not _is_nonnegative_dim(-factor, dims, 1):
            return False
        rest = IndexExpr({t: c for t, c in goal.terms.items() if t != atom}, goal.constant)
        if positive and self._is_nonnegative_here(atom, rest, facts) and self._prove(rest, facts):
            return True
        if any(self._prove(simpler, facts) for simpler in self._eliminate(rest, atom, factor, positive)):
            return True
        return self._prove_by_fact(goal, atom, positive, facts) or self._prove_by_cases(rest, atom, factor, facts)

    def _is_nonnegative_here(self, atom: Atom, rest: IndexExpr, facts: Facts) -> bool:
        """Return whether a variable, which may be negative elsewhere, is not where the facts hold."""
        if not isinstance(atom, int) or not facts or (not rest.terms and rest.constant == 0):
            return False
        variable = self.variables[atom]
        return bool(variable.cases) and self._prove(loop_index(atom), facts)

    def _eliminate(self, rest: IndexExpr, atom: Atom, factor: Dim, positive: bool) -> Iterable[IndexExpr]:
        """Yield lower bounds, or multiples of these, of `rest + factor * atom` without the atom."""
        if isinstance(atom, int):
            known = self.variables[atom]
            for bound in known.lows if positive else known.highs:
                yield rest + bound * factor
            constant = known.low if positive else known.high
        else:
            assert isinstance(atom, FloorDiv), "the variables of kernels are numbered"
            constant = self._interval_of_atom(atom)[0 if positive else 1]
            if _is_nonnegative(atom.divisor - 1):
                dividend = atom.inner - (atom.divisor - 1) if positive else atom.inner
                yield rest * atom.divisor + dividend * factor
        if constant is not None:
            yield rest + factor * constant

    def _prove_by_fact(self, goal: IndexExpr, atom: Atom, positive: bool, facts: Facts) -> bool:
        """Eliminate an atom by a fact in which it has the same sign; each fact serves once."""
        factor = goal.terms[atom]
        for position, fact in enumerate(facts):
            other = fact.terms.get(atom)
            if other is None or not _is_nonnegative(other if positive else -other):
                continue
            simpler = goal * (other if positive else -other) - fact * (factor if positive else -factor)
            if self._prove(simpler, facts[:position] + facts[position + 1 :]):
                return True
        return False

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
        """Return known facts and new ones, with what follows from these for the cases of their variables."""
        key = tuple(facts), known
        refined = self._refined.get(key)
        if refined is None:
            refined = self._refined[key] = self._refine(*key)
        return refined

    def _refine(self, facts: Facts, known: Facts) -> Facts:
        result = dict.fromkeys(known)
        waiting = list(facts)
        for _ in range(MAX_REFINEMENTS):
            if not waiting:
                break
            fact = _rounded(waiting.pop())
            if fact in result:
                continue
            low, _ = self.interval(fact)
            if low is not None and low >= 0:
                continue
            result[fact] = None
            if not fact.terms:
                waiting += [IndexExpr({}, dim) for dim in _weaker(fact.constant)]
            for atom, factor in fact.terms.items():
                if isinstance(atom, int):
                    waiting += self._consequences(fact, atom, factor)
        for fact in map(_rounded, facts):  # what follows from some of them may have taken all steps
            if not self.is_certain(fact):
                result.setdefault(fact)
        return _with_decided(tuple(result))

    def _consequences(self, fact: IndexExpr, atom: int, factor: Dim) -> list[IndexExpr]:
        """Return what follows from a fact for one of its variables: weaker facts, and those of the only case left."""
        known = self.variables[atom]
        rest = IndexExpr({t: c for t, c in fact.terms.items() if t != atom}, fact.constant)
        goals: list[IndexExpr] = []
        if known.cases:
            possible = [case for case in known.cases if not self._is_negative(rest + case.value * factor)]
            if len(possible) == 1:
                value = loop_index(atom)
                goals += [*possible[0].facts, possible[0].value - value, value - possible[0].value]
                goals += [rest + possible[0].value * factor]
        if _is_nonnegative(factor):
            goals += [rest + high * factor for high in known.highs]
        elif _is_nonnegative(-factor):
            goals += [rest + low * factor for low in known.lows]
        return goals

    def _is_negative(self, expression: IndexExpr) -> bool:
        _, high = self.interval(expression)
        return high is not None and high < 0


def _rounded(expression: IndexExpr) -> IndexExpr:
    """Return an expression that is not negative exactly if this one is, divided by what its coefficients share."""
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
    """Return the constant of a dim, and what the coefficients of its other terms share."""
    if isinstance(dim, int):
        return dim, 0
    terms = dict(dim.terms)
    constant = terms.pop((), 0)
    return constant, math.gcd(*terms.values())


def _divided(dim: Dim, shared: int) -> Dim:
    return D.apply("floordiv", dim, shared)


def _order(atom: Atom) -> float:
    """Return when an atom is eliminated: the later it was defined, the earlier; a quotient before its dividend."""
    if isinstance(atom, int):
        return atom
    assert isinstance(atom, FloorDiv), "the variables of kernels are numbered"
    return max(map(_order, atom.inner.terms), default=0) + 0.5


def _all_known(bounds: list[int | None], choose: object) -> list[int]:
    """Return the least or the greatest of some bounds if all are known."""
    known = [bound for bound in bounds if bound is not None]
    assert callable(choose)
    return [choose(known)] if known and len(known) == len(bounds) else []


@lru_cache(maxsize=16384)
def _interval_of_symbols(dim: SymbolicDim) -> tuple[int | None, int | None]:
    # A symbol may be 0, and has no upper bound.
    constant = dict(dim.terms).get((), 0)
    if D.is_nonnegative(dim - constant, 1):
        return constant, None
    return None, (constant if D.is_nonnegative(constant - dim, 1) else None)


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


def _is_nonnegative(dim: Dim, bounds: int = 1) -> bool:
    return dim >= 0 if isinstance(dim, int) else D.is_nonnegative(dim, bounds)


@lru_cache(maxsize=16384)
def _is_refuted(goal: SymbolicDim, facts: tuple[Dim, ...]) -> bool:
    """Return whether a dim is negative for some sizes for which the facts hold: no search finds a proof then."""
    for sample in range(len(_SAMPLES)):
        value = _value_in(goal, sample)
        if value is not None and value < 0 and all((_value_in(fact, sample) or 0) >= 0 for fact in facts):
            return True
    return False


_SAMPLES = (1, 2, 3, 3, 4, 4, 9, 9, 40, 40, 300, 300)
"""Sizes are tried that are smaller than these."""


@lru_cache(maxsize=65536)
def _value_in(dim: Dim, sample: int) -> int | None:
    """Return the value of a dim where its symbols have certain values; None if it has none there."""
    total = 0
    for atoms, factor in D.terms_of(dim):
        for atom in atoms:
            value = _atom_in(atom, sample)
            if value is None:
                return None
            factor *= value
        total += factor
    return total


@lru_cache(maxsize=65536)
def _atom_in(atom: str, sample: int) -> int | None:
    parts = D.atom_parts(atom)
    if parts is None:
        return zlib.crc32(f"{sample} {atom}".encode()) % _SAMPLES[sample]
    left, right = _value_in(parts[1], sample), _value_in(parts[2], sample)
    if left is None or right is None or (right == 0 and parts[0] in ("floordiv", "mod")):
        return None
    result = D.apply(parts[0], left, right)
    assert isinstance(result, int)
    return result


def dims_of(facts: Facts) -> tuple[Dim, ...]:
    """Return the facts about sizes alone."""
    return tuple(fact.constant for fact in facts if not fact.terms)


def _with_decided(facts: Facts) -> Facts:
    """Return facts about sizes with the minima and maxima in them that the others decide."""
    decided = (IndexExpr({}, dim) for dim in _decided_dims(dims_of(facts)))
    return (*facts, *(fact for fact in decided if fact not in facts))


@lru_cache(maxsize=4096)
def _decided_dims(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return dims that have minima and maxima without those that the others decide."""
    # A dim does not decide about itself: `d - min(d, 1)` is no proof that d is at least 1.
    simple = tuple(dim for dim in dims if not _has_choice(dim))
    return tuple(dict.fromkeys(_decided(dim, simple) for dim in dims if _has_choice(dim)))


def _has_choice(dim: Dim) -> bool:
    return not isinstance(dim, int) and any(_is_choice(atoms) for atoms, _ in dim.terms)


@lru_cache(maxsize=16384)
def _is_choice(atoms: Monomial) -> bool:
    """Return whether there is a minimum or maximum in a product of atoms."""
    return any("min(" in atom or "max(" in atom for atom in atoms)


@lru_cache(maxsize=16384)
def _decided(dim: Dim, facts: tuple[Dim, ...]) -> Dim:
    """Return a dim with the smaller, or larger, operand for each minimum, or maximum, that these facts decide."""
    if isinstance(dim, int) or not _has_choice(dim):
        return dim
    total: Dim = 0
    for atoms, factor in dim.terms:
        total = total + D.product([_decided_atom(atom, facts) for atom in atoms]) * factor
    return total


def _decided_atom(atom: str, facts: tuple[Dim, ...]) -> Dim:
    parts = D.atom_parts(atom)
    if parts is None:
        return D.parse(atom)
    function, left, right = parts[0], _decided(parts[1], facts), _decided(parts[2], facts)
    if function in ("min", "max"):
        difference = left - right
        if _is_nonnegative_dim(difference, facts, 1):
            return left if function == "max" else right
        if _is_nonnegative_dim(difference * -1, facts, 1):
            return right if function == "max" else left
    return D.apply(function, left, right)


@lru_cache(maxsize=65536)
def _is_nonnegative_dim(goal: Dim, facts: tuple[Dim, ...], depth: int = 3) -> bool:
    """Return whether a dim is not negative if these are not: it is a sum of multiples of them and such a dim."""
    if isinstance(goal, int):
        return goal >= 0
    if _is_refuted(goal, facts):
        return False
    if not _is_refuted(goal, ()) and _is_nonnegative(goal, MAX_BOUNDS):
        return True
    if _is_nonnegative_above(goal, facts):
        return True
    if not depth:
        return False
    if depth > 1 and _has_choice(goal):
        decided = _decided(goal, tuple(fact for fact in facts if not _has_choice(fact)))
        if decided != goal:
            return _is_nonnegative_dim(decided, facts, depth)
    for fact in facts:
        for atoms, factor in fact.terms if isinstance(fact, SymbolicDim) else ():
            for quotient, multiple in _multiples(goal, atoms, factor):
                if _is_nonnegative_dim(goal * multiple - fact * quotient, facts, depth - 1):
                    return True
    return _holds_in_cases(goal, facts, depth - 1)


def _is_nonnegative_above(goal: SymbolicDim, facts: tuple[Dim, ...]) -> bool:
    """Return whether a dim has no negative term if its atoms count from the least values that the facts say.

    So products of differences are proven: `a*b - 4*a - 4*b + 16` is `(a - 4)*(b - 4)`, and 0 or more from 4 on.
    """
    least = _least_values(facts)
    if not least or all(factor >= 0 for _, factor in goal.terms):
        return False
    names = dict.fromkeys(atom for atoms, _ in goal.terms for atom in atoms)
    if not all(atom in least or _is_nonnegative(D.parse(atom)) for atom in names):
        return False
    # Symbols of their own: what holds between quotients and their dividends does not hold from there on.
    above = {atom: D.symbol(f"above{i}") + least.get(atom, 0) for i, atom in enumerate(names)}
    total: Dim = 0
    for atoms, factor in goal.terms:
        total = total + D.product([above[atom] for atom in atoms]) * factor
    return all(factor >= 0 for _, factor in D.terms_of(total))


@lru_cache(maxsize=4096)
def _least_values(facts: tuple[Dim, ...]) -> dict[str, int]:
    """Return the least values, above 0, of atoms that facts bound alone."""
    least: dict[str, int] = {}
    for fact in facts:
        terms = dict(D.terms_of(fact))
        constant = terms.pop((), 0)
        if constant >= 0 or len(terms) != 1:
            continue
        ((atoms, factor),) = terms.items()
        if len(atoms) == 1 and factor > 0:
            least[atoms[0]] = max(least.get(atoms[0], 0), -(constant // factor))
    return least


def _weaker(dim: Dim) -> Iterable[Dim]:
    """Yield simpler dims that are not negative if this one is not."""
    if isinstance(dim, int):
        return
    terms = dict(dim.terms)
    constant = terms.pop((), 0)
    if constant >= 0:
        return
    # What is subtracted is not negative, and a product is at least 1 only if its factors are.
    positive = {atoms: factor for atoms, factor in terms.items() if factor > 0}
    taken = [SymbolicDim(((atoms, 1),)) for atoms, factor in terms.items() if factor < 0]
    if taken and all(map(_is_nonnegative, taken)):
        kept: Dim = constant
        for term in positive.items():
            kept = kept + SymbolicDim((term,))
        yield kept
    if not taken and len(positive) == 1:
        ((atoms, _),) = positive.items()
        factors = [D.parse(atom) for atom in atoms]
        if len(factors) > 1 and all(map(_is_nonnegative, factors)):
            yield from (factor - 1 for factor in factors)
    for atoms, factor in positive.items():
        parts = D.atom_parts(atoms[0]) if len(atoms) == 1 else None
        if parts is not None and parts[0] == "floordiv" and isinstance(parts[2], int) and parts[2] > 0:
            yield (dim - SymbolicDim(((atoms, factor),))) * parts[2] + parts[1] * factor


def _holds_in_cases(goal: SymbolicDim, facts: tuple[Dim, ...], depth: int) -> bool:
    """Return whether a dim is not negative with either operand of one of its minima or maxima in its place."""
    for atoms, factor in goal.terms:
        parts = D.atom_parts(atoms[0]) if len(atoms) == 1 else None
        if parts is None or parts[0] not in ("min", "max"):
            continue
        rest = goal - SymbolicDim(((atoms, factor),))
        if all(_is_nonnegative_dim(rest + side * factor, facts, depth) for side in parts[1:]):
            return True
    return False


def _multiples(goal: SymbolicDim, atoms: Monomial, factor: int) -> Iterable[tuple[Dim, int]]:
    """Yield by what a fact and a goal are multiplied so that a term of the fact cancels out one of the goal."""
    for goal_atoms, goal_factor in goal.terms:
        taken, whole = Counter(atoms), Counter(goal_atoms)
        if not atoms or goal_factor * factor <= 0 or not taken <= whole:
            continue
        quotient = D.product([D.parse(atom) for atom in (whole - taken).elements()]) * abs(goal_factor)
        if _is_nonnegative(quotient):
            yield quotient, abs(factor)
