"""The unit as a code generator: the parts of a model that it computes, in its own layouts, compiled by Mirlo."""

from dataclasses import dataclass

from mirlo.extend.codegen import CodeGenerator, conv_bias_activation, is_op, wildcard
from mirlo.extend.rules import decline
from mirlo_npu.rules import refusal

TYPES = (("f32", "f32"), ("i8", "i32"))


def takes_conv(match):
    """Return whether the unit convolves this: images of f32, or of i8 to i32."""
    conv = match.op("conv")
    types = tuple(value.dtype.name for value in (conv.x, conv.output))
    if types not in TYPES or conv.weight.dtype != conv.x.dtype:
        return decline("the unit convolves f32, or i8 to i32", found=types)
    if len(conv.x.shape) != 4:
        return decline("the unit convolves images", rank=len(conv.x.shape))
    if conv.groups != 1 or set(conv.dilations) > {1}:
        return decline("the unit has no groups and no dilations", groups=conv.groups, dilations=conv.dilations)
    return True


def takes_matmul(match):
    """Return whether the unit multiplies these matrices."""
    matmul = match.op("matmul")
    if matmul.transpose_lhs or matmul.transpose_rhs:
        return decline("the unit reads matrices as they are")
    return refusal(matmul.lhs, matmul.rhs) or True


@dataclass(frozen=True)
class Npu(CodeGenerator):
    """Convolutions and products; their code is Mirlo's, and calls the unit's driver."""

    name = "npu"
    layouts = {"relax.conv": ("N*C", "O*I")}
    pipeline = "convert-layout,hoist-layouts,fold-constant,npu-claim,remove-dead,legalize{target=npu}"
    driver = "npu-driver"

    def patterns(self):
        matmul = is_op("relax.matmul")(wildcard(), wildcard()).named("matmul")
        return [
            ("conv_relu", conv_bias_activation(bias=False, activation="relax.relu"), takes_conv),
            ("conv_bias_relu", conv_bias_activation(activation="relax.relu"), takes_conv),
            ("conv", conv_bias_activation(activation=False), takes_conv),
            ("matmul_relu", is_op("relax.relu")(matmul), takes_matmul),
            ("matmul", matmul, takes_matmul),
        ]
