"""Products with packed weights of 2, 4 and 8 bits, compared with sums of products of the weights that panels hold."""

from __future__ import annotations

import random

import pytest
from planted_faults import plant_fault

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dims import parse
from mirlo.dialects.tir.view import prim_functions
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.keep_definitions import definitions_of, functions_by_name
from mirlo.passes.exact.operator_definition import definition_of
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.targets.llvm.nbits.code import Dots
from mirlo.targets.llvm.nbits.functions import product_function
from mirlo.targets.llvm.nbits.layout import PanelLayout
from mirlo.targets.llvm.nbits.product import Product
from mirlo.targets.llvm.options import find_machine

PROCESSORS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "icelake-server", "neoverse-n1", "neoverse-v1")
COUNTS = ("1", "2", "5", "9", "65", "n")
CODEBOOK = tuple(float(i) / 4 for i in (-9, -7, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 10, 13))


def _random_product(rng: random.Random, processor: str) -> Product:
    """Return a product as `pack-nbits` chooses them for a processor."""
    machine = find_machine(f"cpu={processor}")
    kinds = ["integers", "integers", "integers", "f4e2m1", "f8e4m3fn"]
    kinds += ["codebook"] if machine.avx2 or machine.avx512 else []
    kind = rng.choice([*kinds, "words"] if machine.avx512 else kinds)
    bits = {"f4e2m1": 4, "f8e4m3fn": 8, "codebook": 4, "words": rng.choice((5, 6))}.get(kind, rng.choice((2, 4, 8)))
    block, columns = rng.choice((32, 32, 64, 128)), rng.choice((16, 33, 50))
    rows = rng.choice((96, 128, 160, 100))
    zero = "" if kind in ("f4e2m1", "f8e4m3fn", "codebook") else rng.choice(["", "f32", "i8" if block < 64 else "f32"])
    layout = PanelLayout(
        bits, block, columns, rows, rng.choice(("f32", "f16", "bf16")), zero, kind if kind[0] == "f" else "",
        CODEBOOK if kind == "codebook" else (), least=-(1 << (bits - 1)) if kind == "words" else 0,
        is_by_row=kind == "f8e4m3fn",
    )  # fmt: skip
    digits = rng.choice((0, 1, 2))
    has_digits = layout.is_integer and kind != "words" and rows % layout.sub == 0 and Dots.supports(machine, layout)
    digits = digits if has_digits else 0
    if bits == 8 and kind == "integers":
        is_signed = not digits or Dots(machine).is_signed
        layout = PanelLayout(bits, block, columns, rows, layout.scale, zero, is_signed=is_signed, is_by_row=not digits)
    return Product(layout, parse(rng.choice(COUNTS)), digits)


def packed_pair(product: Product, processor: str) -> tuple[ir.Module, KernelPair]:
    """Return the kernel of a product with its definition."""
    module = ir.Module.create()
    function = product_function(product, find_machine(f"cpu={processor}"), ir.Location.unknown())
    module.body.append(function.operation)
    Pipeline("keep-definitions,schedule{target=llvm},lower-loops").run(module, Session())
    kept = definitions_of(module.operation.opview)
    assert kept is not None
    (definition,) = functions_by_name(kept).values()
    (scheduled,) = prim_functions(module.operation)
    return module, KernelPair(definition_of(definition), scheduled.operation)


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(120))
def test_each_packed_product_is_equal(seed: int) -> None:
    rng = random.Random(seed)
    processor = rng.choice(PROCESSORS)
    with make_context(), ir.Location.unknown():
        product = _random_product(rng, processor)
        _, pair = packed_pair(product, processor)
        verdict = pair.verify()
        assert verdict.status == EQUAL, f"{processor}: {product}: {verdict}"


def test_faults_in_packed_products_are_found() -> None:
    rng = random.Random(0)
    product = Product(PanelLayout(4, 32, 33, 96, "f16", "i8"), 3, 0)
    with make_context(), ir.Location.unknown():
        _, pair = packed_pair(product, "x86-64-v4")
        planted = [plant_fault(pair.scheduled, rng) for _ in range(20)]
        found = [KernelPair(pair.definition, each[0]).verify().status for each in planted if each is not None]
        assert found.count(DIFFERENT) > len(found) // 2
