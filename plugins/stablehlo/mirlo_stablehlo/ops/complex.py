"""Operations on complex tensors, imported as operations on two real ones."""

from __future__ import annotations

import math
import operator
import re as regex
from collections.abc import Callable, Sequence

import numpy as np

from mirlo.extend.frontend import Tensor, TensorType, UnsupportedOperation, resource_bytes
from mirlo.extend.library import FORMULAS, Complex, Formula
from mirlo_stablehlo.names import NAMES
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.regions import combiner
from mirlo_stablehlo.registry import CONVERTERS, complex_converter, converter

BY_PARTS = (
    "add", "subtract", "negate",
    "broadcast", "broadcast_in_dim", "concatenate", "dynamic_broadcast_in_dim", "dynamic_gather", "dynamic_pad",
    "dynamic_reshape", "dynamic_slice", "dynamic_update_slice", "gather", "get_dimension_size", "pad",
    "real_dynamic_slice", "reshape", "reverse", "select", "slice", "torch_index_select", "transpose",
)  # fmt: skip
"""Operations that apply to real and imaginary parts separately."""
BILINEAR = ("convolution", "dot", "dot_general", "dynamic_conv", "einsum")
_NUMBER = regex.compile(r"[-+\w.]+")


def complex_operand(op: StablehloOperation, index: int) -> Complex:
    """Return an operand; the imaginary part of a real one is 0."""
    real, *rest = op.parts[index]
    return Complex(real, rest[0] if rest else real.filled(0.0))


@complex_converter(*BY_PARTS)
def by_parts(op: StablehloOperation) -> Sequence[Tensor]:
    return op.by_parts(CONVERTERS[op.name])[: len(op.declared_parts())]


@complex_converter(*BILINEAR)
def bilinear(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert a bilinear product to products of the parts."""
    convert = CONVERTERS[op.name]

    def product(*which: int) -> Tensor | None:
        if any(len(part) <= i for part, i in zip(op.parts, which, strict=False)):
            return None  # the imaginary part of a real operand
        chosen = [(part[i],) for part, i in zip(op.parts, which, strict=False)]
        result = convert(StablehloOperation(op.op, op.name, [*chosen, *op.parts[2:]], op.builder))
        return result if isinstance(result, Tensor) else result[0]

    rows = product(0, 0), product(1, 1), product(0, 1), product(1, 0)
    real = _joined(operator.sub, rows[0], rows[1])
    imaginary = _joined(operator.add, rows[2], rows[3])
    return [real, imaginary]


def _joined(combine: Callable[[Tensor, Tensor], Tensor], left: Tensor | None, right: Tensor | None) -> Tensor:
    if left is not None and right is not None:
        return combine(left, right)
    result = right if left is None else left
    assert result is not None  # one of two operands is complex
    return result


def _converter_of(formula: Formula) -> Callable[[StablehloOperation], Sequence[Tensor]]:
    return lambda op: formula(complex_operand(op, 0)).tensors()


for _operator, _formula in FORMULAS.items():
    complex_converter(*NAMES.get(_operator, ()))(_converter_of(_formula))
complex_converter("sign")(_converter_of(Complex.sign))


@complex_converter("multiply")
def multiply(op: StablehloOperation) -> Sequence[Tensor]:
    return (complex_operand(op, 0) * complex_operand(op, 1)).tensors()


@complex_converter("divide")
def divide(op: StablehloOperation) -> Sequence[Tensor]:
    return (complex_operand(op, 0) / complex_operand(op, 1)).tensors()


@complex_converter("power")
def power(op: StablehloOperation) -> Sequence[Tensor]:
    return complex_operand(op, 0).power(complex_operand(op, 1)).tensors()


@complex_converter("abs")
def absolute(op: StablehloOperation) -> Tensor:
    return complex_operand(op, 0).abs()


@complex_converter("complex")
def make(op: StablehloOperation) -> Sequence[Tensor]:
    return op.operands


@complex_converter("real")
def real(op: StablehloOperation) -> Tensor:
    return op.operands[0]


@complex_converter("imag")
def imaginary(op: StablehloOperation) -> Tensor:
    return op.operands[1]


@complex_converter("convert")
def convert(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `convert`: a real number gets the imaginary part 0, a real result loses the imaginary part."""
    operand = complex_operand(op, 0)
    dtype = op.declared().dtype
    parts = [x.cast(dtype) if x.dtype is not dtype else x for x in operand.tensors()]
    return parts[: len(op.declared_parts())]


@complex_converter("compare")
def compare(op: StablehloOperation) -> Tensor:
    """Convert `compare`: complex numbers are equal or not, they have no order."""
    direction = op.word("comparison_direction")
    if direction not in ("EQ", "NE"):
        raise UnsupportedOperation(f"compares complex numbers by {direction}: they have no order")
    left, right = complex_operand(op, 0), complex_operand(op, 1)
    same = left.equals(right)
    return same if direction == "EQ" else ~same


@complex_converter("constant")
def constant(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `constant`; a splat is kept as one element."""
    declared = op.declared()
    elements = _elements(op, declared)
    result = []
    for part in (elements[..., 0], elements[..., 1]):
        shape = declared.static_shape if part.size == declared.elements else ()
        result.append(op.constant(part.reshape(shape), declared, declared.shape))
    return result


def _elements(op: StablehloOperation, declared: TensorType) -> np.ndarray:
    """Return the elements [count, 2] of a constant from MLIR's text, since the bindings cannot read complex ones."""
    target = declared.dtype.to_numpy()
    text = op.op.get_asm(use_local_scope=True, print_generic_op_form=True)
    if "dense<" not in text:
        # The bindings have no class for complex elements that are listed, and fail where such an attribute is read.
        resource = resource_bytes(op.op.attributes["value"], 2 * math.prod(declared.static_shape) * target.itemsize)
        if resource is not None:
            return np.frombuffer(resource, target).reshape(-1, 2)
        raise UnsupportedOperation("its elements are not listed: expected dense<...> or dense_resource<...>")
    listed = text[text.index("dense<") + 6 : text.rindex("> : tensor<")]
    listed = listed.partition("> : tensor<")[0]
    if listed.startswith('"0x'):
        raw: np.ndarray = np.frombuffer(bytes.fromhex(listed.strip('"')[2:]), target)
        return raw.reshape(-1, 2)
    unsigned = np.dtype(f"u{target.itemsize}")
    numbers = [
        np.array(int(word, 16), unsigned).view(target) if word.startswith("0x") else np.array(float(word), target)
        for word in _NUMBER.findall(listed)
    ]
    return np.array(numbers, target).reshape(-1, 2)


@complex_converter("iota", "dynamic_iota")
def iota(op: StablehloOperation) -> Sequence[Tensor]:
    part = CONVERTERS[op.name](op)
    assert isinstance(part, Tensor)
    return [part, op.constant(0, part.dtype, part.shape)]


@complex_converter("reduce")
def reduce(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert reductions: sums by parts, other functions on both parts."""
    is_sum = len(op.parts) == 2 and combiner(op.op.regions[0].blocks[0]) == "add" and op.ints("dimensions")
    return op.by_parts(CONVERTERS[op.name]) if is_sum else _listed(CONVERTERS[op.name](op))


@complex_converter("reduce_window")
def reduce_window(op: StablehloOperation) -> Sequence[Tensor]:
    return _listed(CONVERTERS[op.name](op))


def _listed(results: Tensor | Sequence[Tensor]) -> Sequence[Tensor]:
    return [results] if isinstance(results, Tensor) else results


@complex_converter("scatter")
def scatter(op: StablehloOperation) -> Sequence[Tensor]:
    if combiner(op.op.regions[0].blocks[0]) not in ("add", "new"):
        raise UnsupportedOperation("combines complex numbers by another function than +, or replaces them")
    return op.by_parts(CONVERTERS[op.name])


@converter("real")
def real_of_real(op: StablehloOperation) -> Tensor:
    return op.operands[0]


@converter("imag")
def imaginary_of_real(op: StablehloOperation) -> Tensor:
    return op.constant(0, op.type(0).dtype, op.type(0).shape)
