"""Legalization rules of target `c`."""

from __future__ import annotations

from mirlo.passes.legalize.rules.matmul import wide_products
from mirlo.passes.rules import legalize

legalize("relax.matmul", target="c", name="wide")(wide_products)
