"""The pass `npu-claim`: relu after a product is done by the unit."""

from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import operations, replace_op
from mirlo.extend import Pass, register_pass
from mirlo_npu.dialect import Gemm
from mirlo_npu.rules import refusal


@register_pass
@dataclass(frozen=True)
class Claim(Pass):
    """Give products that a relu follows to the unit in one piece."""

    name = "npu-claim"
    anchor = "func.func"

    def run(self, op, session):
        for relu in operations(op):
            product = relu.operands[0].owner if relu.name == "relax.relu" else None
            if getattr(product, "name", "") == "relax.matmul" and not refusal(*product.operands):
                with ir.InsertionPoint(relu), relu.location:
                    replace_op(relu, [Gemm.make(*product.operands, relu=True)])
