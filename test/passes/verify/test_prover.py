"""Proofs that index expressions are not negative."""

from __future__ import annotations

import itertools
import random

import pytest

from mirlo.dialects.bindings import ir, new_context
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import IndexExpr, number
from mirlo.passes.bounds.accesses import MAX_KERNEL_STEPS
from mirlo.passes.bounds.dim_proofs import MAX_DIM_STEPS, prove_dim
from mirlo.passes.bounds.prover import MAX_STEPS, Case, Prover
from mirlo.passes.bounds.values import quotient


@pytest.mark.parametrize(
    ("goal", "fact", "holds"),
    [("n*m - m", "n*n - m - 1", False), ("n*n - m", "n*n - m - 1", True), ("n*n*m - m", "n*n - 1", True)],
)
def test_fact_with_a_factor_twice(goal: str, fact: str, holds: bool) -> None:
    """A fact about `n*n` decides about no goal with a single `n`, and is no error."""
    assert Prover().is_nonnegative(number(D.parse(goal)), (number(D.parse(fact)),)) == holds


@pytest.mark.parametrize(
    ("goal", "facts", "holds"),
    [
        ("a*b - 4*a - 4*b + 16", ("a - 4", "b - 4"), True),
        ("a*b - 4*a - 4*b + 15", ("a - 4", "b - 4"), False),
        ("a*b - 4*a - 4*b + 15", ("a - 5", "b - 5"), True),
        ("a*b - 4*a - 4*b + 16", ("a - 4", "b - 3"), False),
        ("n*a*b - 4*n*a - 4*n*b + 16*n + 3*m", ("2*a - 7", "b - 4"), True),
        ("floordiv(h, 2)*w - 4*floordiv(h, 2) - 4*w + 16", ("floordiv(h, 2) - 4", "w - 4"), True),
        ("h*floordiv(h, 2) - 9*h", ("floordiv(h, 2) - 4",), False),
    ],
)
def test_products_of_sizes_above_their_least(goal: str, facts: tuple[str, ...], holds: bool) -> None:
    assert Prover().is_nonnegative(number(D.parse(goal)), tuple(number(D.parse(fact)) for fact in facts)) == holds


@pytest.mark.parametrize(
    ("goal", "facts", "holds"),
    [
        ("4*floordiv(n + 1, 2) - 1", ("n - 1",), True),
        ("4*floordiv(n + 1, 2) - 1", (), False),
        ("floordiv(n, 2) - 1", ("n - 1",), False),
        ("8 - floordiv(n, 4)", ("32 - n",), True),
        ("7 - floordiv(n, 4)", ("32 - n",), False),
        ("m - 3*floordiv(n, 3)", ("m - n",), True),
    ],
)
def test_quotients_whose_dividends_facts_bound(goal: str, facts: tuple[str, ...], holds: bool) -> None:
    assert Prover().is_nonnegative(number(D.parse(goal)), tuple(number(D.parse(fact)) for fact in facts)) == holds


def test_what_is_proven_of_random_sizes_holds() -> None:
    """Compute goals for all sizes for which the facts hold."""
    rng, proven = random.Random(0), 0
    for _ in range(300):
        atoms = [D.symbol("a"), D.symbol("b"), D.symbol("a") // 2]
        facts = [rng.choice(atoms) * rng.randint(1, 2) - rng.randint(1, 5) for _ in range(rng.randint(1, 2))]
        goal: D.Dim = rng.randint(-2, 9)
        for _ in range(rng.randint(1, 4)):
            goal = goal + (rng.choice(atoms) - rng.randint(0, 4)) * (rng.choice(atoms) - rng.randint(0, 4))
        if not Prover().is_nonnegative(number(goal), tuple(map(number, facts))):
            continue
        proven += 1
        for a, b in itertools.product(range(12), repeat=2):
            values = {"a": a, "b": b}
            if all(D.substitute(fact, values) >= 0 for fact in facts):
                assert D.substitute(goal, values) >= 0, (goal, facts, values)
    assert proven > 30


def test_facts_of_one_variable_limit_it_first() -> None:
    """Of each variable one end is tried, not that of its interval and then that of a fact."""
    prover = Prover()
    own = [prover.variable([number(0)], [number(high)]) for high in (1, 2, 1, 7, 4)]
    *_, row, column = own
    facts = prover.refine([row * -8 + 31, column * -1 + 3])
    last = sum(
        (each * step for each, step in zip(own, (19800, 6600, 3300, 264, 8), strict=True)), number(2115 + 4 * 33)
    )
    assert prover.is_nonnegative(last * -1 + 39599, facts)
    assert MAX_KERNEL_STEPS - prover.budget <= 3


def test_what_facts_limit_holds() -> None:
    """Goals of random variables with intervals are proven where they hold at all points at which the facts do."""
    rng, proven, missed = random.Random(1), 0, 0
    for _ in range(300):
        prover = Prover()
        highs = [rng.randint(1, 5) for _ in range(3)]
        own = [prover.variable([number(0)], [number(high)]) for high in highs]
        facts = []
        for _ in range(rng.randint(1, 2)):
            limited, sign = rng.choice(own), rng.choice((-1, 1))
            facts.append(limited * (sign * rng.randint(1, 2)) + rng.randint(0, 5) * -sign)
        goal = number(rng.randint(-3, 9))
        for each in own:
            goal = goal + each * rng.randint(-3, 3)
        known = prover.refine(facts)
        names = [next(iter(each.variables())) for each in own]
        points = [dict(zip(names, point, strict=True)) for point in itertools.product(*(range(h + 1) for h in highs))]
        here = [point for point in points if all(_at(fact, point) >= 0 for fact in facts)]
        holds = prover.is_nonnegative(goal, known)
        assert not holds or all(_at(goal, point) >= 0 for point in here), (goal, facts)
        proven += holds and bool(here)
        missed += bool(here) and not holds and all(_at(goal, point) >= 0 for point in here)
    assert proven > 60 and missed == 0, (proven, missed)


def _at(form: IndexExpr, point: dict[int, int]) -> int:
    """Return the value of an expression of variables at a point."""
    value = form.substitute(lambda name: number(point[name]))
    assert isinstance(value.constant, int) and not value.terms
    return value.constant


def random_dim(rng: random.Random, terms: int) -> D.Dim:
    """Return a sum of products of sizes, minima and quotients."""
    sizes = [D.symbol(f"s{i}") for i in range(8)]

    def atom() -> D.Dim:
        size: D.Dim = rng.choice(sizes)
        if rng.random() < 0.3:
            size = D.minimum(size, rng.choice(sizes) + rng.randrange(5))
        return size // rng.randrange(2, 4) if rng.random() < 0.2 else size

    total: D.Dim = rng.randrange(-5, 3)
    for _ in range(terms):
        total = total + D.product([atom() for _ in range(rng.randint(1, 2))]) * rng.choice((1, 1, 2, -1))
    return total


@pytest.mark.parametrize("count", [4, 16, 60])
def test_proofs_about_many_sizes_end(count: int) -> None:
    """A search takes a bounded number of steps, whatever facts there are; the cache changes no outcome."""
    rng = random.Random(count)
    for _ in range(2):
        goal, facts = random_dim(rng, count), tuple(random_dim(rng, count) for _ in range(count))
        proof = prove_dim(goal, facts)
        assert proof.steps <= MAX_DIM_STEPS
        prove_dim.cache_clear()
        assert prove_dim(goal, facts) == proof
        prover = Prover()
        prover.is_nonnegative(number(goal), tuple(map(number, facts)))
        assert prover.budget >= MAX_KERNEL_STEPS - MAX_STEPS


def test_proofs_about_dims_take_steps_of_the_kernel() -> None:
    rng, prover = random.Random(16), Prover(400)
    facts = tuple(number(random_dim(rng, 16)) for _ in range(16))
    for _ in range(40):
        prover.is_nonnegative(number(random_dim(rng, 16)), facts)
    assert prover.budget == 0
    assert not prover.is_nonnegative(number(D.symbol("a") - D.symbol("b")), (number(D.symbol("a") - D.symbol("b")),))


@pytest.mark.parametrize("function", ["min", "max", "floordiv"])
def test_bounds_of_dims_with_many_operations_end(function: str) -> None:
    rng, total = random.Random(0), D.symbol("n") * -1
    for i in range(300):
        total = total + D.apply(function, D.symbol(f"a{i}") + i, rng.randint(2, 9)) * rng.choice((-1, 1))
    assert not D.is_nonnegative(total)
    assert D.is_nonnegative(total - total + D.symbol("n"))


def test_cases_of_a_condition_beside_those_of_a_minimum() -> None:
    """What a condition chooses has the same case as another value that it chooses, and no other one."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse("%c = arith.constant true\n%d = arith.constant false")
        condition, other = (op.operation.results[0] for op in module.body.operations)
        prover = Prover()

        def cases(first: int, second: int, choice: ir.Value | None) -> IndexExpr:
            return prover.variable(cases=(Case(number(first)), Case(number(second))), choice=choice)

        chosen = cases(0, 5, condition)
        assert prover.is_nonnegative(chosen - cases(0, 5, condition))
        assert not prover.is_nonnegative(chosen - cases(0, 5, other))
        assert prover.is_nonnegative(cases(5, 6, None) - chosen)
        assert not prover.is_nonnegative(cases(1, 6, None) - chosen)


def test_a_fact_about_a_maximum_yields_those_about_its_operands() -> None:
    """Lanes that a mask of `max(min(62 - 33g - 16p, 4), 0)` columns leaves are inside of these."""
    prover = Prover()
    lane, group, panel = (prover.variable([number(0)], [number(last)]) for last in (3, 1, 2))
    left, four = group * -33 + panel * -16 + 62, number(4)
    smaller = prover.variable(highs=(left, four), cases=(Case(left, (four - left,)), Case(four, (left - four,))))
    cases = (Case(smaller, (smaller,)), Case(number(0), (smaller * -1,)))
    count = prover.variable(lows=(smaller, number(0)), cases=cases)
    later = prover.variable([number(0)], [number(16)])
    facts = prover.refine((count - lane - 1,))
    assert prover.is_nonnegative(left - lane - 1 + later, facts)


@pytest.mark.parametrize("divisor", [1, 2, 3, 8])
@pytest.mark.parametrize("text", ["n", "2*n + 3", "n*m + 1"])
def test_a_quotient_is_between_its_bounds(text: str, divisor: int) -> None:
    """`value - divisor` is less than `quotient * divisor`, which is at most `value`; also of variables."""
    prover = Prover()
    for value in (number(D.parse(text)), number(D.parse(text)) + prover.variable([number(0)], [number(9)])):
        whole = quotient(value, divisor) * divisor
        assert prover.is_nonnegative(value - whole) and prover.is_nonnegative(whole + (divisor - 1) - value)
        assert divisor == 1 or not prover.is_nonnegative(whole - value)


@pytest.mark.parametrize(
    ("text", "low", "high", "interval"),
    [
        ("7", 1, 4, (8, 11)), ("n + 2", 1, 4, (3, None)), ("5 - n", 1, 4, (None, 9)), ("n - m", 1, 4, (None, None)),
        ("5 - n", 1, None, (None, None)), ("n + 2", None, 4, (None, None)),
    ],
)  # fmt: skip
def test_intervals_of_sums(
    text: str, low: int | None, high: int | None, interval: tuple[int | None, int | None]
) -> None:
    """A bound is known where those of all parts are: a dim has none above, its negation none below."""
    prover = Prover()
    ends = [[] if end is None else [number(end)] for end in (low, high)]
    assert prover.interval(number(D.parse(text)) + prover.variable(*ends)) == interval
