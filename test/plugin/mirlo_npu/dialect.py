"""The operation of the matrix unit."""

from mirlo.extend import Bool, DialectOp, OpError, TensorType, operand, register_dialect, result

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
