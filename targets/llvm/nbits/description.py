"""A product with packed weights as attributes of its function, which `definition.py` reads."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import parse
from mirlo.targets.llvm.nbits.layout import PanelLayout
from mirlo.targets.llvm.nbits.product import Product

NAME = "llvm.nbits_product"
"""The name of the operator in descriptions of functions."""


def description(product: Product) -> dict[str, ir.Attribute]:
    """Return a product as attributes of the operator."""
    layout, i64 = product.layout, ir.IntegerType.get_signless(64)
    numbers = {name: getattr(layout, name) for name in ("bits", "block", "columns", "rows", "least")}
    return {
        **{name: ir.IntegerAttr.get(i64, number) for name, number in {**numbers, "digits": product.digits}.items()},
        **{name: ir.StringAttr.get(getattr(layout, name)) for name in ("scale", "zero", "floats")},
        **{name: ir.BoolAttr.get(getattr(layout, name)) for name in ("is_signed", "is_by_row")},
        "codebook": ir.DenseF64ArrayAttr.get(list(layout.codebook)),
        "count": ir.StringAttr.get(str(product.count)),
    }


def described_product(attributes: ir.DictAttr) -> Product:
    """Return the product that attributes describe."""
    bits, block, columns, rows, least, digits = (
        ir.IntegerAttr(attributes[name]).value for name in ("bits", "block", "columns", "rows", "least", "digits")
    )
    scale, zero, floats = (ir.StringAttr(attributes[name]).value for name in ("scale", "zero", "floats"))
    is_signed, is_by_row = (ir.BoolAttr(attributes[name]).value for name in ("is_signed", "is_by_row"))
    codebook = tuple(ir.DenseF64ArrayAttr(attributes["codebook"]))
    layout = PanelLayout(
        bits, block, columns, rows, scale, zero, floats, codebook, is_signed=is_signed, is_by_row=is_by_row, least=least
    )
    count = parse(ir.StringAttr(attributes["count"]).value)
    return Product(layout, count, digits)
