"""The primitives that are printed for a product, given back, make the same code."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from scheduled import Kernel, tensor

ORDERS = ("mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn", "bmk,bkn->bmn", "bmk,kn->bmn", "mk,k->m", "mkl,kln->mn")
SIZES = (1, 3, 8, 17, 33, 64, 100)


class Product:
    """A product of two arrays of a type, with or without an epilogue, that a seed determines."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        given, result = choose.choice(ORDERS).split("->")
        self.terms, self.result = given.split(","), result
        self.sizes = {dim: choose.choice(SIZES) for dim in sorted(set("".join(self.terms)))}
        self.dtype = choose.choice(("f32", "f32", "f64"))
        self.has_epilogue = choose.random() < 0.5
        self.inputs = [tensor(*(self.sizes[dim] for dim in term), dtype=self.dtype) for term in self.terms]

    def build(self, p: Any, a: Any, b: Any) -> Any:
        """Build the prim function."""
        reduced = [dim for dim in self.sizes if dim not in self.result]

        def product(*axes: Any) -> Any:
            at = dict(zip([*self.result, *reduced], axes, strict=True))
            left, right = (tuple(at[dim] for dim in term) for term in self.terms)
            return a[left] * b[right]

        shape = tuple(self.sizes[dim] for dim in self.result)
        c = p.reduce("add", shape, tuple(self.sizes[dim] for dim in reduced), product)
        return p.compute(shape, lambda *axes: c[axes] * 2.0) if self.has_epilogue else c


def loops_of(kernel: Kernel) -> str:
    """Return a kernel's code without what scheduled it."""
    return re.sub(r"attributes \{.*\} \{$", "", kernel.text, flags=re.MULTILINE)


@pytest.mark.sample(12)
@pytest.mark.parametrize("machine", ["sse", "avx2", "avx512"])
@pytest.mark.parametrize("seed", range(40))
def test_printed_primitives_make_the_same_code(seed: int, machine: str) -> None:
    product = Product(seed)
    kernel = Kernel(product.build, product.inputs, options={"machine": machine})
    if kernel.rule != "contraction":
        return
    assert "register_tile" in str(kernel.trace)
    again = Kernel(product.build, product.inputs, options={"machine": machine, "schedules": {"kernel": kernel.trace}})
    assert loops_of(again) == loops_of(kernel)
