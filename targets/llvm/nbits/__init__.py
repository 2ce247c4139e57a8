"""Products with weights of 2, 4 and 8 bits that stay packed in memory, and the pass `pack-nbits`, which finds them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import blocks, erase_dead, replace_op
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.graph.rewrite import Rewriter
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.passes.rules import Decline
from mirlo.passes.session import REQUESTED_ACTIVATIONS, Approximation, RowType
from mirlo.runtime.names import ACTIVATIONS, AUTO
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.nbits.weights import PackedWeights, match_weights
from mirlo.targets.llvm.options import find_machine

if TYPE_CHECKING:
    from mirlo.passes.session import Session
    from mirlo.targets.llvm.machine import Machine
    from mirlo.targets.llvm.nbits.convert import ProductFunctions
    from mirlo.targets.llvm.nbits.product import Product


ERRORS = {"i8": "2e-2", "i8x2": "2e-4", "bf16": "1e-2"}
"""What tests bound the difference from exact rows by."""


@dataclass(frozen=True)
class NbitsRecord:
    """A product with packed weights, or why weights of a few bits are dequantized."""

    product: Product | None
    declined: Decline | None


@register_pass
@dataclass(frozen=True)
class PackNbits(Pass):
    """Compute products with dequantized weights of 2, 4 and 8 bits from the packed weights.

    The weights of such a product are stored as panels that a kernel reads once, and dequantizes in registers. The
    attribute `activations` of the product, or the option of this name, says whether rows may be quantized. Products
    that do not match are computed with weights that are dequantized in memory.
    """

    name = "pack-nbits"
    keeps_layers = True
    contained = True
    trusted = True
    machine: str = option("", "machine to choose for; default: the one that is scheduled for")
    activations: str = option(
        "", "how activations are represented: exact, i8, i8x2, bf16, or auto, the fastest; default: as products say"
    )
    explain: bool = option(False, "print the decision for each product")

    def run(self, op: ir.OpView, session: Session) -> None:
        machine = find_machine(self.machine or session.options.get("machine"))
        kinds = (*ACTIVATIONS, AUTO)
        if self.activations not in ("", *kinds):
            raise PassError(f"pack-nbits: 'activations' must be one of {', '.join(kinds)}; got {self.activations}")
        products = _Products(op, machine, self.activations or session.options.get(REQUESTED_ACTIVATIONS) or "")
        for function in op.operation.regions[0].blocks[0].operations:
            for block in reversed(blocks(function)):
                for matmul in [o.operation for o in block.operations if o.operation.name == "relax.matmul"]:
                    weights = match_weights(matmul.opview, session)
                    if weights is not None:
                        self._convert(matmul, weights, session, products)
                erase_dead(block, is_pure_relax)
        for kind in sorted(products.row_types):
            session.notes.append(RowType(kind))
            if products.activations and kind in ERRORS:
                what = f"{kind} rows of products with packed weights: expect up to {ERRORS[kind]} of the largest result"
                session.notes.append(Approximation(self.name, what))

    def _convert(
        self, op: ir.Operation, weights: PackedWeights | Decline, session: Session, products: _Products
    ) -> None:
        location = op.location
        outcome = weights if isinstance(weights, Decline) else products.convert(op, weights, session)
        if self.explain:
            text = f"dequantizes its weights: {outcome}" if isinstance(outcome, Decline) else "reads packed weights"
            session.remark(f"the product {text}", location)
        session.notes.append(NbitsRecord(None, outcome) if isinstance(outcome, Decline) else NbitsRecord(outcome, None))


class _Products:
    """The products of a module that are converted, their kernels and their panels."""

    def __init__(self, module: ir.OpView, machine: Machine, activations: str):
        self.module, self.machine, self.activations = module, machine, activations
        self.functions: ProductFunctions | None = None
        self.panels: dict[Hashable, str] = {}
        self.row_types: set[str] = set()
        """How the rows of these products are represented."""

    def convert(self, op: ir.Operation, weights: PackedWeights, session: Session) -> Product | Decline:
        """Replace a product by a call of its kernel; return it, or why it stays."""
        # Imported here: what builds the kernels is ten modules, and few models have packed weights.
        from mirlo.targets.llvm.nbits.convert import ProductConverter, ProductFunctions

        self.functions = self.functions or ProductFunctions(self.module, self.machine)
        converter = ProductConverter(op.opview, weights, Rewriter(op, session), self.functions, self.panels)
        activations = self.activations or op.opview.activations
        if activations == AUTO:  # rows of bf16 save nothing here, and products without such instructions are exact
            activations = "i8"
        product = converter.product(activations)
        if not isinstance(product, Decline):
            self.row_types.add(activations if product.digits or activations == "bf16" else "exact")
            replace_op(op, [converter.convert(product, activations)])
        return product
