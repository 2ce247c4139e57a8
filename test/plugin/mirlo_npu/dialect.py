"""The operations of the unit."""

import numpy as np

from mirlo.extend.ops import (
    Bool,
    DialectOp,
    Float,
    Ints,
    OnnxName,
    OpError,
    Precision,
    TensorType,
    Trait,
    operand,
    optional,
    register_dialect,
    require_at_most,
    result,
)

DIALECT = register_dialect("npu")


class Gemm(DialectOp, name="gemm", dialect=DIALECT):
    """A product of matrices, with negative numbers as zeros where `relu` says so."""

    x, weight, output = operand(), operand(), result()
    relu = Bool(False)

    @staticmethod
    def infer(x: TensorType, weight: TensorType, *, relu: bool) -> TensorType:
        if x.rank != 2 or weight.rank != 2 or x.shape[1] != weight.shape[0]:
            raise OpError(f"cannot multiply {x} and {weight}")
        return TensorType((x.shape[0], weight.shape[1]), x.dtype)


class Conv(DialectOp, name="conv", dialect=DIALECT):
    """A convolution of images [N, H, W, C] with kernels [O, KH, KW, C]: of f32, or of i8 to i32."""

    x, weight, bias, output = operand(), operand(), optional(), result()
    strides, padding = Ints((1, 1)), Ints((0, 0, 0, 0))
    relu = Bool(False)

    @staticmethod
    def infer(x: TensorType, weight: TensorType, bias: TensorType | None, *, strides, padding, relu) -> TensorType:
        if x.rank != 4 or weight.rank != 4 or x.shape[3] != weight.shape[3]:
            raise OpError(f"cannot convolve {x} with {weight}")
        for i in (0, 1):
            size = x.shape[1 + i] + padding[i] + padding[2 + i]
            require_at_most(weight.shape[1 + i], size, f"the kernel {weight} does not fit the image {x}")
        sizes = [
            (x.shape[1 + i] + padding[i] + padding[2 + i] - weight.shape[1 + i]) // strides[i] + 1 for i in range(2)
        ]
        kind = "i32" if x.dtype.name == "i8" else x.dtype
        return TensorType.of((x.shape[0], *sizes, weight.shape[0]), kind)


class TanhShrink(DialectOp, name="tanh_shrink", dialect=DIALECT):
    """x - scale * tanh(x): no rule anywhere names it, all that Mirlo does with it follows from this class."""

    TRAITS = (Trait.ELEMENTWISE, Trait.ACTIVATION)
    PRECISION = Precision.REGISTERS
    FLOPS_PER_ELEMENT = 6
    ONNX = OnnxName("TanhShrink", domain="com.npu", attributes=(("scale", "factor"),))
    ATEN = ("npu::tanh_shrink",)
    STABLEHLO = ("npu.tanh_shrink",)

    x, output = operand(), result()
    scale = Float(1.0)

    @staticmethod
    def infer(x: TensorType, *, scale: float) -> TensorType:
        if not x.dtype.is_float:
            raise OpError(f"operand must be floating point, got {x}")
        return x

    @staticmethod
    def meaning(x, *, scale):
        return x - scale * np.tanh(x)
