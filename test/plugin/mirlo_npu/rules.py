"""What the unit computes; everything else falls through to the rules of the CPU."""

from mirlo.extend import decline, intrinsic, legalize
from mirlo_npu.dialect import Gemm

TILE = 4


def refusal(a, b):
    """Why the unit does not multiply these, or None."""
    shapes = [tuple(value.type.shape) for value in (a, b)]
    if str(a.type.element_type) != "f32" or any(len(shape) != 2 for shape in shapes):
        return decline("the unit multiplies matrices of f32", a=a.type, b=b.type)
    if any(dim % TILE for shape in shapes for dim in shape):
        return decline("the unit works on whole tiles", tile=TILE, shapes=shapes)
    return None


@legalize("relax.matmul", target="npu")
def matmul(op, b):
    """Products of matrices in whole tiles."""
    return refusal(op.lhs, op.rhs) or b.emit(Gemm, op.lhs, op.rhs)


@legalize("npu.gemm", target="npu")
def gemm(op, b):
    """A call of the unit's driver."""

    def body(loops, x, weight, y):
        (rows, depth), columns = x.shape, weight.shape[1]
        loops.call_extern("NpuGemm", x, weight, y, rows, columns, depth, int(op.relu))

    return b.call_loops(body, op.x, op.weight)


@intrinsic("exp", target="npu")
def exp(op, b):
    """The unit's table of exponentials."""
    return b.call_extern("NpuExp", "f32", *op.nums) if op.dtype == "f32" else decline("the table is of f32")
