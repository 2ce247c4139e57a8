"""What the unit computes; everything else falls through to the rules of the CPU."""

from typing import Annotated

from mirlo.extend.rules import Choice, decline, intrinsic, legalize, schedule
from mirlo.extend.schedules import Schedule
from mirlo_npu.dialect import Gemm

TILE = 4
LOAD, COMPUTE, STORE = 1, 2, 3
"""The unit's queues: each runs its commands in order, and waits for others where a command requires it."""
DATA, KERNEL, BIAS = 0, 1, 2
"""Its memories."""
F32, I8 = 0, 1


def refusal(a, b):
    """Why the unit does not multiply these, or None."""
    shapes = [a.shape, b.shape]
    if a.dtype != "f32" or any(len(shape) != 2 for shape in shapes):
        return decline("the unit multiplies matrices of f32", a=a.type, b=b.type)
    if any(dim % TILE for shape in shapes for dim in shape):
        return decline("the unit works on whole tiles", tile=TILE, shapes=shapes)
    return None


@legalize("relax.matmul", target="npu")
def matmul(op, b):
    """Products of matrices in whole tiles."""
    if op.transpose_lhs or op.transpose_rhs:
        return decline("the unit reads matrices by rows", lhs=op.transpose_lhs, rhs=op.transpose_rhs)
    return refusal(op.lhs, op.rhs) or b.emit(Gemm, op.lhs, op.rhs)


@legalize("npu.gemm", target="npu")
def gemm(op, b):
    """Lower to a call of the unit's driver."""

    def body(loops, x, weight, y):
        (rows, depth), columns = x.shape, weight.shape[1]
        loops.call_extern("NpuGemm", x, weight, y, rows, columns, depth, int(op.relu))

    return b.call_loops(body, op.x, op.weight)


@legalize("npu.conv", target="npu")
def conv(op, b):
    """Lower a convolution: one image after the other through the unit's queues, which exchange tokens."""
    strides, padding, relu = op.strides, op.padding, int(op.relu)

    def body(loops, x, weight, bias, y):
        def push(giver, taker):
            loops.call_extern("NpuDepPush", giver, taker)

        def pop(giver, taker):
            loops.call_extern("NpuDepPop", giver, taker)

        kind = I8 if x.dtype.name == "i8" else F32
        images, height, width, channels = x.shape
        filters, kh, kw = weight.shape[:3]
        rows, columns = y.shape[1:3]
        push(COMPUTE, LOAD)  # the memories are free at first
        push(STORE, COMPUTE)
        loops.call_extern("NpuLoad", KERNEL, weight, 0, filters * kh * kw * channels * x.dtype.bytes)
        if bias is not None:
            loops.call_extern("NpuLoad", BIAS, bias, 0, filters * y.dtype.bytes)
        for image in loops.range(images):
            size = height * width * channels * x.dtype.bytes
            pop(COMPUTE, LOAD)
            loops.call_extern("NpuLoad", DATA, x, image * size, size)
            push(LOAD, COMPUTE)
            pop(LOAD, COMPUTE)
            pop(STORE, COMPUTE)
            shape = (height, width, channels, filters, kh, kw, rows, columns)
            loops.call_extern("NpuConv", kind, *shape, *strides, padding[0], padding[1], int(bias is not None), relu)
            push(COMPUTE, LOAD)
            push(COMPUTE, STORE)
            pop(COMPUTE, STORE)
            size = rows * columns * filters * y.dtype.bytes
            loops.call_extern("NpuStore", y, image * size, size)
            push(STORE, COMPUTE)
        pop(COMPUTE, LOAD)
        pop(STORE, COMPUTE)
        loops.call_extern("NpuSync")

    return b.call_loops(body, op.x, op.weight, op.bias)


@intrinsic("exp", target="npu")
def exp(op, b):
    """Lower to the unit's table of exponentials."""
    return b.call_extern("NpuExp", "f32", *op.nums) if op.dtype == "f32" else decline("the table is of f32")


@schedule(target="npu")
def signs(kernel, context, size: Annotated[int, Choice((2, 4, 8), "elements of a line", tried=(2, 8))] = 4):
    """Signs, line by line."""
    s = Schedule(kernel.view.op)
    if s.blocks() != ["sign"]:
        return decline("only signs", blocks=s.blocks())
    s.split(s.loops("sign")[-1], (None, size))
    return s.emit(choices={"size": size})
