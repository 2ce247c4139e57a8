"""Sizes of prim functions: quotients that are functions of the finest, products that callers check."""

from __future__ import annotations

import itertools
import random

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dims import Dim, product, substitute, symbol
from mirlo.dialects.tir.sizes import EXTENTS, add_extents, extents_of, in_finest, quotients_by_symbol
from mirlo.dialects.tir.specialize import substitute_dims

N, M = symbol("n"), symbol("m")
VALUES = range(1, 200)


@pytest.mark.parametrize("seed", range(40))
def test_quotients_are_functions_of_the_finest(seed: int) -> None:
    """They are where a parameter takes their place, and not where the finest does not decide another one."""
    draw = random.Random(seed)
    pairs = [(draw.choice((2, 4, 8, 6)), draw.randint(0, 9)) for _ in range(draw.randint(2, 3))]
    dims = [(N + shift) // divisor for divisor, shift in pairs]
    if any(not isinstance(dim, int) and len(dim.terms) > 1 for dim in dims):
        dims = [dim * 3 + 1 for dim in dims]
    quotients = quotients_by_symbol([*dims, M * 2])
    assert "m" not in quotients
    if "n" not in quotients:
        return
    own = quotients["n"]
    values = in_finest(own, symbol("f"))
    for n in VALUES:
        finest = (n + own[0].shift) // own[0].divisor
        for each in own:
            value = values[each.atom]
            found = value if isinstance(value, int) else substitute(value, {"f": finest})
            assert found == (n + each.shift) // each.divisor


def test_quotients_of_multiples_are_found() -> None:
    dims = [(N + 7) // 8, (N + 3) // 4, (N + 1) // 2]
    assert [each.divisor for each in quotients_by_symbol(dims)["n"]] == [2, 4, 8]
    assert quotients_by_symbol([*dims, N]) == quotients_by_symbol([(N + 2) // 4, (N + 1) // 2]) == {}
    assert quotients_by_symbol([(N + 3) // 4, (N + 1) // 6]) == {}


FUNCTION = 'func.func @f(%x: tensor<?x?xf32, #relax.dims<["n", "m"]>>) { return }'


def _function(module: ir.Module) -> ir.Operation:
    """Return the function of a module, which must live as long."""
    return module.body.operations[0].operation


def test_products_of_callers() -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(FUNCTION)
        function = _function(module)
        add_extents(function, [(2, 3), (), (1, 1)])
        assert extents_of(function) == [] and EXTENTS not in function.attributes
        add_extents(function, [(N, 1, 4), (N, 4), (4, N), (1, M), (2, 3)])
        assert extents_of(function) == [(N, 4), (4, N), (M,)]
        add_extents(function, [(N, 4), (N, M)])
        assert extents_of(function) == [(N, 4), (4, N), (M,), (N, M)]


@pytest.mark.parametrize(("n", "m"), list(itertools.product((5, symbol("k")), (7, symbol("n")))))
def test_products_of_a_function_for_some_sizes(n: Dim, m: Dim) -> None:
    with make_context(), ir.Location.unknown():
        modules = [ir.Module.parse(FUNCTION) for _ in range(2)]
        function, plain = map(_function, modules)
        add_extents(function, [(N, 4), (M, 3), (N, M)])
        for each in (function, plain):
            substitute_dims(each, {"n": n, "m": m})
        assert EXTENTS not in plain.attributes
        expected = [(n, 4), (m, 3), (n, m)]
        assert extents_of(function) == [dims for dims in expected if not isinstance(product(list(dims)), int)]
