"""The algebra of dims: canonical forms agree with arithmetic on numbers, and text with the dims that it prints."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable

import pytest

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.errors import OpError

NAMES = ("batch", "n", "past.length")


def random_dim(rng: random.Random, depth: int = 3) -> tuple[D.Dim, str]:
    """Return a dim, built by operators, and a Python expression that says the same."""
    if depth == 0 or rng.random() < 0.25:
        if rng.random() < 0.4:
            number = rng.randint(0, 9)
            return number, str(number)
        name = rng.choice(NAMES)
        return D.symbol(name), name.replace(".", "_")
    left, left_text = random_dim(rng, depth - 1)
    kind = rng.choice(["+", "-", "*", "floordiv", "mod", "floordiv", "min", "max"])
    if kind in ("floordiv", "mod"):
        by = rng.randint(1, 6)
        return D.apply(kind, left, by), f"(({left_text}) {'//' if kind == 'floordiv' else '%'} {by})"
    right, right_text = random_dim(rng, depth - 1)
    if kind in ("min", "max"):
        return D.apply(kind, left, right), f"{kind}({left_text}, {right_text})"
    value = {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right}[kind]()
    return value, f"(({left_text}) {kind} ({right_text}))"


@pytest.mark.parametrize("seed", range(300))
def test_canonical_form_has_the_value_of_the_expression(seed: int) -> None:
    rng = random.Random(seed)
    dim, text = random_dim(rng)
    for _ in range(8):
        sizes = {name: rng.randint(0, 40) for name in NAMES}
        expected = eval(text, {name.replace(".", "_"): size for name, size in sizes.items()})
        assert D.substitute(dim, sizes) == expected, (text, str(dim), sizes)


@pytest.mark.parametrize("seed", range(300))
def test_text_round_trip(seed: int) -> None:
    dim, _ = random_dim(random.Random(seed))
    assert D.parse(str(dim)) == dim
    assert str(D.parse(str(dim))) == str(dim)


@pytest.mark.parametrize("seed", range(100))
def test_nonnegative_is_never_wrong(seed: int) -> None:
    rng = random.Random(seed)
    dim, _ = random_dim(rng)
    if D.is_nonnegative(dim):
        for _ in range(20):
            assert D.substitute(dim, {name: rng.randint(0, 40) for name in NAMES}) >= 0


N, M, K = D.symbol("n"), D.symbol("m"), D.symbol("k")


@pytest.mark.parametrize(
    "dim",
    [
        N % 7, (7 - N % 7) % 7, 6 - N % 7, N + -N % 8, N - N % 8, 1 - D.minimum(N, 1), D.maximum(N - 3, 0) + 3 - N % 4,
        N - D.minimum(N, M), D.maximum(N, M) - M, D.minimum(N + 2, M + 1) - 1, 5 - D.maximum(N % 3, M % 6),
    ],
)  # fmt: skip
def test_remainders_and_limits_have_bounds(dim: D.Dim) -> None:
    assert D.is_nonnegative(dim)
    assert not D.is_nonnegative(dim - 1) or all(D.substitute(dim, {"n": n, "m": m}) > 0 for n in (0, 7) for m in (0, 5))


@pytest.mark.parametrize("seed", range(100))
def test_remainders_of_remainders(seed: int) -> None:
    """What exporters pad windows with: the canonical form has the value of the expression, and keeps its divisor."""
    rng = random.Random(seed)
    size, window = N + rng.randint(-3, 9), rng.randint(1, 9)
    padded = size + (window - size % window) % window
    if rng.random() < 0.5:
        padded = padded + window * ((M % (window * 2)) // window)
    assert padded % window == 0 and padded // window * window == padded
    for n in range(30):
        whole = D.substitute(size, {"n": n})
        assert (D.substitute(padded, {"n": n, "m": 0})) == -(-whole // window) * window


@pytest.mark.parametrize("seed", range(100))
def test_a_difference_of_quotients_is_nonnegative_only_if_it_never_is_negative(seed: int) -> None:
    rng = random.Random(seed)
    terms = [rng.choice((-3, -1, 1, 2)) * ((N + rng.randint(0, 9)) // rng.choice((1, 2, 3, 4, 8))) for _ in "abc"]
    dim = terms[0] + terms[1] + terms[2] + rng.randint(-3, 6)
    if D.is_nonnegative(dim):
        assert all(D.substitute(dim, {"n": n}) >= 0 for n in range(200)), str(dim)


@pytest.mark.parametrize(
    "less, more",
    [
        (2 * ((N + 7) // 8) - 2, (N + 3) // 4),
        (2 * D.ceildiv(N, 2) - 2, N),
        (N, 2 * D.ceildiv(N, 2) + 1),
        (4 * (N // 4), N + 1),
        (3 * ((N // 2 + 2) // 3), N // 2 + 3),
    ],
)
def test_quotients_are_compared_by_their_bounds(less: D.Dim, more: D.Dim) -> None:
    assert less < more
    assert not more < less


@pytest.mark.parametrize(
    "one, other",
    [
        (N + M, M + N),
        ((N + 1) * (N - 1), N * N - 1),
        ((2 * N + 4) // 2, N + 2),
        (D.ceildiv(N, 2), (N - 1) // 2 + 1),
        (((N + 1) // 2 + 1) // 2, (N + 3) // 4),
        ((N * M * 12) // (N * M), 12),
        ((N + M) * 768 * N // (N + M), 768 * N),
        ((4 * N + 3) % 4, 3),
        ((N * M) % M, 0),
        (D.maximum(N, 0), N),
        (D.maximum(N + 2, N - 1), N + 2),
        (D.minimum(N, N + M), N),
        (D.minimum(N * 2 - M, 2**63 - 1), N * 2 - M),
        (D.maximum(N // 2, 0), N // 2),
        (D.product([2, N, 3]), 6 * N),
        ((7 - N % 7) % 7, -N % 7),
        ((N + (7 - N % 7) % 7) % 7, 0),
        ((N + (7 - N % 7) % 7) // 7 * 7, N + (7 - N % 7) % 7),
        ((N + -N % 7) // 7, D.ceildiv(N, 7)),
        (N % 6 % 3, N % 3),
        (N - N % 4, N // 4 * 4),
        (D.minimum(N, 1) * N * M, N * M),
        (D.minimum(N, 1) * D.minimum(N, 1), D.minimum(N, 1)),
    ],
)
def test_equal_expressions_are_equal(one: D.Dim, other: D.Dim) -> None:
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    "dim, text",
    [
        (N, "n"),
        (2 * N + 1, "2*n + 1"),
        (N - M, "-m + n"),
        (5 - N, "-n + 5"),
        (N * N * 3 - 2, "3*n*n - 2"),
        ((N + 1) // 2, "floordiv(n + 1, 2)"),
        (N % 8, "-8*floordiv(n, 8) + n"),
        (5 * N // 6, "-floordiv(n + 5, 6) + n"),  # of two quotients, the one with smaller coefficients
        (N % M, "mod(n, m)"),
        (D.maximum(N - 1, 0), "max(0, n - 1)"),
        (D.UNKNOWN, "?"),
    ],
)
def test_text(dim: D.Dim, text: str) -> None:
    assert str(dim) == text


def test_order_of_operands() -> None:
    rng = random.Random(1)
    for _ in range(300):
        (left, _), (right, _) = random_dim(rng), random_dim(rng)
        for function in (D.minimum, D.maximum):
            assert function(left, right) == function(right, left)


def test_unknown_equals_nothing() -> None:
    assert D.UNKNOWN != D.UNKNOWN
    assert N != D.UNKNOWN
    assert (N + D.UNKNOWN) is D.UNKNOWN
    assert D.maximum(D.UNKNOWN, 3) is D.UNKNOWN
    assert D.parse(" ? ") is D.UNKNOWN
    assert copy.deepcopy(D.UNKNOWN) is D.UNKNOWN
    assert pickle.loads(pickle.dumps(D.UNKNOWN)) is D.UNKNOWN
    assert pickle.loads(pickle.dumps(N + 1)) == N + 1


def test_symbols_of_a_dim() -> None:
    dim = D.parse("floordiv(batch + past.length, 2)*n + max(m, 3)")
    assert isinstance(dim, D.SymbolicDim)
    assert dim.symbols() == {"batch", "past.length", "n", "m"}


def test_substitute_keeps_the_rest_symbolic() -> None:
    assert D.substitute(D.parse("floordiv(n + m, 2)"), {"m": 4}) == N // 2 + 2
    assert D.substitute(N * M, {"n": M}) == M * M
    assert D.substitute(7, {"n": 1}) == 7


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "is not a dim expression"),
        ("n +", "is not a dim expression"),
        ("n / 2", "unexpected 'n / 2'"),
        ("f(n, 2)", "unexpected 'f(n, 2)'"),
        ("max(n)", "'max' takes two dims"),
        ("floordiv(n, 0)", "floordiv of n by 0"),
        ("mod(4, 0)", "mod of 4 by 0"),
        ("True", "unexpected 'True'"),
        ("1.5", "unexpected '1.5'"),
        ("max + 1", "'max' is not a name for a dim"),
        ("(" * 500 + "n" + ")" * 500, "is not a dim expression"),
    ],
)
def test_bad_text_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError) as error:
        D.parse(text)
    assert why in str(error.value)


def repeated(step: Callable[[D.Dim], D.Dim], count: int) -> D.Dim:
    dim: D.Dim = N
    for _ in range(count):
        dim = step(dim)
    return dim


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (lambda dim: dim * dim, "256 factors"),
        (lambda dim: (dim + M) * (dim + K), "4096 products of terms"),
        (lambda dim: dim // 3 * M + dim, "8192 characters"),
        (lambda dim: D.maximum(dim, M) * dim, "8192 characters"),
        (lambda dim: D.maximum(dim // 3, M), "64 operations in each other"),
        (lambda dim: dim * 1000, "128 bits"),
        (lambda dim: (dim + dim) + (dim + dim), "128 bits"),
    ],
)
def test_expressions_that_grow_with_each_operator_are_refused(step: Callable[[D.Dim], D.Dim], what: str) -> None:
    with pytest.raises(OpError, match=f"a size would be an expression with more than {what}"):
        repeated(step, 70)


def test_the_longest_dims_are_read_as_they_are_printed() -> None:
    longest = D.SymbolicDim(tuple(sorted(((f"n{i}",), 1) for i in range(1024))))
    deepest = repeated(lambda dim: D.maximum(dim // 3, M), 32)
    D.parse.cache_clear()
    assert D.parse(str(deepest)) == deepest
    assert D.parse(str(longest)) == longest
    with pytest.raises(OpError, match="1024 terms"):
        longest + N


@pytest.mark.parametrize("name", ["", "1n", "a b", "a-b", "größe", "lambda", "a.if", "min", "a.", "a.1", "n\n"])
def test_bad_symbol_names(name: str) -> None:
    assert not D.is_symbol_name(name)
    with pytest.raises(ValueError, match="is not a name for a dim"):
        D.symbol(name)


def test_a_slice_to_the_end_ends_at_the_size() -> None:
    n = D.symbol("n")
    for end in (2**63 - 1, 2**63):
        assert D.apply("min", end, n) == n and D.apply("min", n, end) == n
    assert D.apply("min", 2**63 - 2, n) != n
