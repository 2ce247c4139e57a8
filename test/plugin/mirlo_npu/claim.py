"""The pass `npu-claim`: convolutions, and what the unit does to their results and to those of products."""

from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import operations, replace_op
from mirlo.extend.target import Pass, register_pass
from mirlo_npu.dialect import Conv, Gemm
from mirlo_npu.rules import refusal


@register_pass
@dataclass(frozen=True)
class Claim(Pass):
    """Give convolutions in the unit's layouts to it, and products and convolutions that a relu follows in one piece."""

    name = "npu-claim"
    anchor = "func.func"

    def run(self, op, session):
        for conv in operations(op):
            if conv.name == "relax.conv" and (conv.opview.data_layout, conv.opview.kernel_layout) == ("N*C", "O*I"):
                with ir.InsertionPoint(conv), conv.location:
                    replace_op(conv, [claimed(conv.opview)])
        for relu in operations(op):
            product = relu.operands[0].owner if relu.name == "relax.relu" else None
            made = getattr(product, "name", "")
            if made == "npu.conv":
                product.attributes["relu"] = ir.BoolAttr.get(True)
                replace_op(relu, [product.results[0]])
            elif made == "relax.matmul" and not refusal(*product.operands):
                with ir.InsertionPoint(relu), relu.location:
                    replace_op(relu, [Gemm.make(*product.operands, relu=True)])


def claimed(conv):
    """Return the unit's operation for a convolution."""
    return Conv.make(
        conv.x, conv.weight, conv.bias, strides=conv.strides or (1, 1), padding=conv.padding or (0, 0, 0, 0)
    )
