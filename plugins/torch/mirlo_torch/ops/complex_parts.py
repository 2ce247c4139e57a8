"""Operators on complex tensors that apply to the real parts and the imaginary parts separately."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Tensor, UnsupportedOperation
from mirlo.extend.library import Complex
from mirlo_torch.operation import AtenOperation
from mirlo_torch.ops import contract, control, create, index, reduce, shape, strided
from mirlo_torch.ops.complex import ComplexOperand, complex_value
from mirlo_torch.registry import COMPLEX, CONVERTERS, Converter, complex_converter

DATA: dict[Converter, tuple[int, ...]] = {
    shape.view: (0,), shape.expand: (0,), shape.permute: (0,), shape.transpose: (0,), shape.t: (0,),
    shape.select: (0,), shape.slice_: (0,),
    shape.split: (0,), shape.unbind: (0,), shape.cat: (0,), shape.stacked: (0,), shape.diff: (0, 3, 4),
    shape.repeat: (0,), shape.flip: (0,), shape.roll: (0,), shape.constant_pad: (0, 2), shape.pad: (0, 3),
    shape.pad_edges: (0,), shape.diagonal: (0,), shape.unfold: (0,), strided.as_strided: (0,),
    shape.select_scatter: (0, 1), shape.slice_scatter: (0, 1), shape.diagonal_scatter: (0, 1),
    shape.pixel_shuffle: (0,), shape.pixel_unshuffle: (0,),
    create.identity: (0,), create.copy: (0, 1), create.full: (1,), create.new_full: (2,), create.fill: (1,),
    create.scalar_tensor: (0,), create.zeros: (), create.empty: (), create.tri: (0,),
    index.embedding: (0,), index.index_select: (0,), index.gather: (0,), index.take: (0,), index.index: (0,),
    index.index_copy: (0, 3), index.index_fill: (0, 3), index.index_put: (0, 2), index.masked_select: (0,),
    index.masked_scatter: (0, 2),
    reduce.sum_: (0,), reduce.mean: (0,),
}  # fmt: skip
"""By converter of real tensors, the arguments that are data; the others are positions, axes or sizes."""
LINEAR = ("aten.scatter.src", "aten.scatter.value", "aten.scatter_add.default",
          "aten.index_add.default")  # fmt: skip
"""Further operators: the first and the last argument are data."""


def part(op: AtenOperation, x: object, which: int) -> object:
    """Return the real (0) or the imaginary part (1) of an argument that is a tensor."""
    if isinstance(x, (list, tuple)):
        return [part(op, each, which) for each in x]
    if isinstance(x, Complex):
        return x.im if which else x.re
    if isinstance(x, complex):
        return x.imag if which else x.real
    if not which or x is None:
        return x
    return op.constant(0, x.dtype, x.shape) if isinstance(x, Tensor) else 0


def _by_parts(convert: Converter, data: Sequence[int]) -> Converter:
    def converted(op: AtenOperation, *args: object, **kwargs: object) -> object:
        complex_arguments = {place % len(args) for place in data if place < len(args)}
        parts = [
            convert(
                op, *(part(op, x, which) if place in complex_arguments else x for place, x in enumerate(args)), **kwargs
            )
            for which in (0, 1)
        ]
        return _joined(op, parts[0], parts[1])

    return converted


def _joined(op: AtenOperation, real: object, imaginary: object) -> object:
    if isinstance(real, (list, tuple)) and isinstance(imaginary, (list, tuple)):
        return [_joined(op, one, other) for one, other in zip(real, imaginary, strict=True)]
    if not isinstance(real, Tensor) or not isinstance(imaginary, Tensor):
        raise UnsupportedOperation("is not supported for complex numbers")
    declared = op.node.meta["val"]
    return real if hasattr(declared, "dtype") and not op.is_complex else Complex(real, imaginary)


for _name, _convert in CONVERTERS.items():
    if _convert in DATA:
        COMPLEX.setdefault(_name, _by_parts(_convert, DATA[_convert]))
for _name in LINEAR:
    COMPLEX[_name] = _by_parts(CONVERTERS[_name], (0, -1))


@complex_converter("aten.cumsum.default")
def running_sum(op: AtenOperation, x: Complex, axis: int, **ignored: object) -> object:
    return _by_parts(CONVERTERS[op.name], (0,))(op, x, axis)


@complex_converter("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default", "aten.eye.default",
                   "aten.eye.m")  # fmt: skip
def ones(op: AtenOperation, *args: object, **kwargs: object) -> object:
    real = CONVERTERS[op.name](op, *args, **kwargs)
    assert isinstance(real, Tensor)
    return Complex(real, op.constant(0, real.dtype, real.shape)) if op.is_complex else real


COMPLEX["higher_order.wrap_with_set_grad_enabled"] = control.set_grad_enabled
COMPLEX["aten._assert_tensor_metadata.default"] = CONVERTERS["aten._assert_tensor_metadata.default"]

# Products


def product(op: AtenOperation, convert: Converter, x: ComplexOperand, y: ComplexOperand, *rest: object) -> Complex:
    """Return a product of complex tensors by products of their parts."""
    a, b = complex_value(op, x, op.dtype), complex_value(op, y, op.dtype)

    def of(one: Tensor, other: Tensor) -> Tensor:
        result = convert(op, one, other, *rest)
        assert isinstance(result, Tensor)
        return result

    re, im = a.re, a.im
    real = of(re, b.re) - of(im, b.im)
    return Complex(real, of(re, b.im) + of(im, b.re))


@complex_converter("aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.matmul.default",
                   "aten.linalg_matmul.default", "aten.dot.default", "aten.inner.default", "aten.outer.default",
                   "aten.ger.default")  # fmt: skip
def plain_product(op: AtenOperation, x: ComplexOperand, y: ComplexOperand) -> Complex:
    return product(op, CONVERTERS[op.name], x, y)


@complex_converter("aten.vdot.default")
def product_with_conjugate(op: AtenOperation, x: ComplexOperand, y: ComplexOperand) -> Complex:
    conjugate = complex_value(op, x, op.dtype).conj()
    return product(op, contract.dot, conjugate, y)


@complex_converter("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def sum_with_product(
    op: AtenOperation, bias: ComplexOperand, x: ComplexOperand, y: ComplexOperand, *, beta: complex = 1,
    alpha: complex = 1,
) -> Complex:  # fmt: skip
    result = complex_value(op, product(op, contract.product, x, y), op.dtype)
    scaled = result if alpha == 1 else result * complex_value(op, complex(alpha), op.dtype)
    if beta == 0:
        return scaled
    addend = complex_value(op, bias, op.dtype)
    return scaled + (addend if beta == 1 else addend * complex_value(op, complex(beta), op.dtype))


@complex_converter("aten.linear.default")
def linear(
    op: AtenOperation, x: ComplexOperand, weight: Complex | Tensor, bias: ComplexOperand | None = None
) -> Complex:
    result = product(op, contract.product, x, weight, weight.rank > 1)
    if bias is None:
        return result
    return complex_value(op, result, op.dtype) + complex_value(op, bias, op.dtype)


@complex_converter("aten.einsum.default")
def einsum(op: AtenOperation, equation: str, tensors: Sequence[ComplexOperand], **ignored: object) -> object:
    if len(tensors) == 1:
        return _by_parts(contract.einsum, (1,))(op, equation, tensors)
    if len(tensors) > 2:
        raise UnsupportedOperation(
            "multiplies more than two complex tensors at once: multiply them one after the other"
        )
    return product(op, lambda op, x, y: contract.einsum(op, equation, [x, y]), *tensors)


@complex_converter("aten.convolution.default", "aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default",
                   "aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding",
                   "aten.conv_transpose1d.default", "aten.conv_transpose2d.input",
                   "aten.conv_transpose3d.input")  # fmt: skip
def convolution(
    op: AtenOperation, x: ComplexOperand, weight: ComplexOperand, bias: Complex | Tensor | None = None,
    *rest: object,
) -> Complex:  # fmt: skip
    result = product(op, CONVERTERS[op.name], x, weight, None, *rest)
    if bias is None:
        return result
    spatial = op.node.args[1].meta["val"].dim() - 2
    shift = complex_value(op, bias, op.dtype)
    parts = [each.reshape((*bias.shape, *[1] * spatial)) for each in (shift.re, shift.im)]
    return Complex(result.re + parts[0], result.im + parts[1])
