"""Products of tensors: matrices, linear layers, convolutions, einsum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mirlo.extend.frontend import Dim, Tensor, UnsupportedOperation, broadcast_shape
from mirlo.extend.frontend import dims as D
from mirlo_torch.operation import AtenOperation, Ints, Operand, each_axis
from mirlo_torch.registry import converter


def product(op: AtenOperation, x: Tensor, y: Tensor, transposed: bool = False) -> Tensor:
    """Return a product of matrices, of any kind of element."""
    kind = x.dtype
    if kind.is_bool:
        raise UnsupportedOperation("multiplies matrices of bools")
    if x.type.shape[-1] == 0:
        columns = () if y.rank == 1 else (y.shape[-2 if transposed else -1],)
        shape = (*broadcast_shape([x.shape[:-2], y.shape[:-2]]), *x.shape[-2:-1], *columns)
        return op.constant(0, kind).expand(shape)
    return x.matmul(y, transpose_rhs=transposed)


@converter("aten.mm.default", "aten.bmm.default", "aten.mv.default")
def mm(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    return product(op, x, y)


@converter("aten._int_mm.default")
def int_mm(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    """Convert the product of int8 matrices, whose sums are i32."""
    return x.matmul(y, out_dtype=op.dtype)


@converter("aten.matmul.default", "aten.linalg_matmul.default")
def matmul(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    return product(op, x, y)


@converter("aten.dot.default", "aten.vdot.default", "aten.inner.default")
def dot(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    if not x.rank or not y.rank:
        return x * y
    if x.rank == y.rank == 1:
        return product(op, x, y)
    rows, cols = (each.reshape((D.product(each.shape[:-1]), each.shape[-1])) for each in (x, y))
    return product(op, rows, cols, transposed=True).reshape(op.shape)


@converter("aten.outer.default", "aten.ger.default")
def outer(op: AtenOperation, x: Tensor, y: Tensor) -> Tensor:
    return op.operand(x.reshape((*x.shape, 1)), op.dtype) * y.cast(op.dtype)


@converter("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def addmm(op: AtenOperation, bias: Tensor, x: Tensor, y: Tensor, *, beta: Operand = 1, alpha: Operand = 1) -> Tensor:
    result = _scaled(op, product(op, x, y), alpha)
    return (result + _scaled(op, bias.cast(op.dtype), beta)).cast(op.dtype) if beta else result


@converter("aten.addbmm.default")
def addbmm(op: AtenOperation, bias: Tensor, x: Tensor, y: Tensor, *, beta: Operand = 1, alpha: Operand = 1) -> Tensor:
    total = op.wide(product(op, op.wide(x), op.wide(y))).sum(0)
    result = _scaled(op, total, alpha)
    if beta:
        result = result + _scaled(op, bias.cast(result.dtype), beta)
    return result.cast(op.dtype)


def _scaled(op: AtenOperation, x: Tensor, factor: Operand) -> Tensor:
    return x if factor == 1 else x * op.operand(factor, x.dtype)


@converter("aten.linear.default")
def linear(op: AtenOperation, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    result = product(op, x, weight) if weight.rank == 1 else product(op, x, weight, transposed=True)
    return result if bias is None else result + bias


@converter("aten.bilinear.default")
def bilinear(op: AtenOperation, x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = [each.reshape((D.product(each.shape[:-1]), each.shape[-1])) for each in (x, y)]
    result = op.emit("einsum", [rows[0], weight, rows[1]], equation="bn,anm,bm->ba")
    result = result if bias is None else result + bias
    return result.reshape(op.shape)


@converter("aten.einsum.default")
def einsum(op: AtenOperation, equation: str, tensors: Sequence[Tensor], **ignored: object) -> Tensor:
    text = equation.replace(" ", "")
    if any(term.count(letter) > 1 for term in text.split("->")[0].split(",") for letter in term if letter != "."):
        raise UnsupportedOperation(f"takes a diagonal: '{equation}'")
    if "->" not in text:
        letters = [letter for letter in text if letter.isalpha()]
        kept = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        text += "->" + ("..." if "..." in text else "") + "".join(kept)
    return op.emit("einsum", list(tensors), equation=text)


@converter("aten.convolution.default", "aten._convolution.default")
def convolution(
    op: AtenOperation, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int, *_: object,
) -> Tensor:  # fmt: skip
    if transposed:
        return _transposed(op, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return convolved(op, x, weight, bias, stride, padding, dilation, groups)


@converter("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default",
           "aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")  # fmt: skip
def conv(
    op: AtenOperation, x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | str = 0,
    dilation: Ints = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    return convolved(op, x, weight, bias, stride, padding, dilation, groups)


def _same_padding(weight: Tensor, dilation: Sequence[int]) -> list[int]:
    """Return padding that keeps the size of the input; an odd total has one more after than before."""
    totals = []
    for size, step in zip(weight.shape[2:], dilation, strict=True):
        assert isinstance(size, int)
        totals.append((size - 1) * step)
    return [total // 2 for total in totals] + [total - total // 2 for total in totals]


def convolved(
    op: AtenOperation,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints | str,
    dilation: Ints,
    groups: int,
) -> Tensor:
    """Return a convolution of a batch, or of one element without its dim."""
    count = weight.rank - 2
    dilations = each_axis(dilation, count)
    if isinstance(padding, str):
        pads = _same_padding(weight, dilations) if padding == "same" else [0] * (2 * count)
    else:
        pads = each_axis(padding, count) * 2
    batched = _batched(op, x, count)
    operands = [batched, weight] if bias is None else [batched, weight, bias]
    result = op.emit(
        "conv", *operands, strides=each_axis(stride, count), padding=pads, dilations=dilations, groups=groups
    )
    return _unbatched(op, result, x)


def _batched(op: AtenOperation, x: Tensor, spatial: int) -> Tensor:
    return x if x.rank == spatial + 2 else x.reshape((1, *x.shape))


def _unbatched(op: AtenOperation, result: Tensor, x: Tensor) -> Tensor:
    return result if result.rank == x.rank else result.reshape(result.shape[1:])


@converter("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(
    op: AtenOperation, x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints = 0,
    output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1,
) -> Tensor:  # fmt: skip
    return _transposed(op, x, weight, bias, stride, padding, output_padding, groups, dilation)


def _transposed(
    op: AtenOperation, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints,
    output_padding: Ints, groups: int, dilation: Ints,
) -> Tensor:  # fmt: skip
    count = weight.rank - 2
    batched = _batched(op, x, count)
    operands = [batched, weight] if bias is None else [batched, weight, bias]
    result = op.emit(
            "conv_transpose", *operands, strides=each_axis(stride, count), padding=each_axis(padding, count) * 2,
            output_padding=each_axis(output_padding, count), dilations=each_axis(dilation, count), groups=groups,
        )  # fmt: skip
    return _unbatched(op, result, x)


@converter("aten.convolution_backward.default")
def convolution_backward(
    op: AtenOperation, grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: object, stride: Ints, padding: Ints,
    dilation: Ints, transposed: bool, output_padding: Ints, groups: int, mask: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """Convert the gradients of a convolution with respect to its data, its weight and its bias.

    That of the data of a convolution is a transposed convolution, and that of a transposed one a convolution. For the
    weight, data and gradient change their roles.
    """
    count = weight.rank - 2
    strides, pads, dilations = each_axis(stride, count), each_axis(padding, count) * 2, each_axis(dilation, count)
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "groups": groups}
    by_data, by_weight, by_bias = (wanted and op.is_used(index) for index, wanted in enumerate(mask))
    spread, dense = (grad, x) if transposed else (x, grad)
    data, kernel, bias = None, None, None
    if by_data and transposed:
        data = op.emit("conv", grad, weight, padding=pads, **attributes)
    elif by_data:
        rests = _rests(x, grad, weight, strides, pads, dilations)
        extra = [_most(rest, step) for rest, step in zip(rests, strides, strict=True)]
        data = op.emit("conv_transpose", grad, weight, padding=pads, output_padding=extra, **attributes)
        data = data.part([0] * x.rank, (*data.shape[:2], *x.shape[2:]))
    if by_weight:
        window = [op.fixed(size, "a window") for size in weight.shape[2:]]
        whole, after = _whole_windows(op, spread, pads[count:], _rests(spread, dense, weight, strides, pads, dilations))
        attributes["padding"] = [*pads[:count], *after]
        kernel = op.emit("conv_weight_gradient", whole, dense, window=window, **attributes)
    if by_bias:
        bias = grad.sum([0, *range(2, grad.rank)])
    return [data, kernel, bias]


def _rests(
    x: Tensor, y: Tensor, weight: Tensor, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> list[Dim]:
    """Return, by axis, the number of elements of a convolution's padded operand after its last window."""
    rows = zip(x.shape[2:], y.shape[2:], weight.shape[2:], strides, pads, dilations, strict=False)
    return [
        size + 2 * pad - (count - 1) * step - (kernel - 1) * apart - 1 for size, count, kernel, step, pad, apart in rows
    ]


def _most(rest: Dim, step: int) -> int:
    """Return the most elements that are after the last window: fewer than a step."""
    return rest if isinstance(rest, int) else step - 1


def _whole_windows(op: AtenOperation, x: Tensor, pads: Sequence[int], rests: Sequence[Dim]) -> tuple[Tensor, list[int]]:
    """Return a convolution's operand and the padding after it, so that it ends with its last window.

    Elements after that window contribute nothing. If their number is not known, the operand is padded and cut here.
    """
    unknown = [0 if isinstance(rest, int) else pad for pad, rest in zip(pads, rests, strict=True)]
    if any(unknown):
        x = op.emit("pad", x, pads=[*[0] * (x.rank + 2), *unknown], mode="constant", value=0.0)
    after = [pad - rest if isinstance(rest, int) else 0 for pad, rest in zip(pads, rests, strict=True)]
    cuts = [max(-end, 0) if isinstance(rest, int) else rest for end, rest in zip(after, rests, strict=True)]
    sizes = [size - cut for size, cut in zip(x.shape[2:], cuts, strict=True)]
    return x.part([0] * x.rank, (*x.shape[:2], *sizes)), [max(end, 0) for end in after]


@converter("aten._cdist_forward.default", "aten.cdist.default")
def cdist(op: AtenOperation, x: Tensor, y: Tensor, p: float = 2.0, *_: object) -> Tensor:
    """Convert `cdist`: the norms of all differences of rows."""
    rows = x.reshape((*x.shape[:-1], 1, x.shape[-1]))
    others = y.reshape((*y.shape[:-2], 1, *y.shape[-2:]))
    return norm(op, rows - others, p)


def norm(op: AtenOperation, x: Tensor, p: float) -> Tensor:
    """Return the p-norm of the last dim."""
    size, axis = abs(op.wide(x)), x.rank - 1
    if p == 0:
        size = size.not_equals(0).cast(size.dtype)
    if math.isinf(p):
        return size.max(axis).cast(op.dtype)
    powers = size if p in (0, 1) else size ** float(p)
    result = powers.sum(axis)
    return (result if p in (0, 1) else result ** (1.0 / p)).cast(op.dtype)
