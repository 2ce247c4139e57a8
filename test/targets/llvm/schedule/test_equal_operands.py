"""Products whose dims are equal, and products of a tensor with itself: each dim and operand keeps its own identity."""

from __future__ import annotations

import itertools
import random
from typing import Any

import onnx
import pytest
from onnx import TensorProto
from onnx_models import make_model, node

from mirlo.testing import assert_verified

PROCESSORS = ("znver3", "icelake-server", "neoverse-n1")
SIZES: tuple[Any, ...] = ("n", "k", 5, 24)
FORMS = {"mk,kn->mn": (0, 1), "mk,nk->mn": (1, 1), "km,kn->mn": (0, 0)}
"""Equations, and which dim of either operand is K if both are squares."""


def products() -> list[tuple[str, str, tuple[Any, ...], bool, int]]:
    """Draw a processor, an equation, the sizes of m, k and n, whether there is a bias, and a type for each."""
    cases = itertools.product(FORMS, itertools.product(SIZES, repeat=3), (False, True))
    equal = [case for case in cases if len(set(case[1])) < 3]
    drawn = random.Random(0)
    drawn.shuffle(equal)
    types = (TensorProto.FLOAT, TensorProto.FLOAT16)
    return [
        (PROCESSORS[i % 3], equation, sizes, has_bias, types[drawn.random() < 0.25])
        for i, (equation, sizes, has_bias) in enumerate(equal)
    ]


def model_of(equation: str, sizes: tuple[Any, ...], has_bias: bool, kind: int, is_square: bool) -> onnx.ModelProto:
    """Return the model of a product, of a tensor with itself if it is a square."""
    dims = dict(zip("mkn", sizes, strict=True))
    left, right = ([dims[axis] for axis in part] for part in equation.split("->")[0].split(","))
    operands = {"a": (kind, left)} if is_square else {"a": (kind, left), "b": (kind, right)}
    nodes = [node("Einsum", "a a" if is_square else "a b", "y", equation=equation)]
    if has_bias:
        nodes = [node("Einsum", "a a" if is_square else "a b", "p", equation=equation), node("Add", "p c", "y")]
        operands["c"] = (kind, [dims["n"]])
    return make_model(nodes, operands, ["y"])


@pytest.mark.sample(6)
@pytest.mark.parametrize(("cpu", "equation", "sizes", "has_bias", "kind"), products())
def test_dims_of_one_size(cpu: str, equation: str, sizes: tuple[Any, ...], has_bias: bool, kind: int) -> None:
    """A guard of the rows says nothing of columns that are as many."""
    assert_verified(model_of(equation, sizes, has_bias, kind, False), f"llvm{{cpu={cpu}}}")


@pytest.mark.sample(6)
@pytest.mark.parametrize("cpu", PROCESSORS)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("size", ["n", 5, 8, 40])
@pytest.mark.parametrize("equation", FORMS)
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_operands_of_one_tensor(kind: int, equation: str, size: Any, has_bias: bool, cpu: str) -> None:
    """Rows and columns that are read from one tensor keep their own accesses."""
    assert_verified(model_of(equation, (size, size, size), has_bias, kind, True), f"llvm{{cpu={cpu}}}")
