"""Legalization rules of target `spirv`."""

from __future__ import annotations

from mirlo.passes.legalize.rules.matmul import wide_products
from mirlo.passes.rules import legalize

legalize("relax.matmul", target="spirv", name="wide")(wide_products)
