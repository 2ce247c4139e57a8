"""Matrix products and einsum."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from mirlo.dialects.core.attributes import Bool, ElementType, Str
from mirlo.dialects.core.dims import BroadcastDiffers, Dim, DimsDiffer
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.op import OpError, operand, operands
from mirlo.dialects.core.traits import Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import meanings, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    NUMBER,
    broadcast_dims,
    broadcast_shapes,
    product_dtype,
    require_equal_dims,
    require_kind,
    same_dtype,
)


class Matmul(RelaxOp, name="matmul"):
    """numpy's `matmul`: batched over leading dims, vectors allowed; either operand may be read transposed.

    `out_dtype` is the type of the accumulators and of the result; with it, i8 and ui8 operands may be mixed.
    `activations` is how the left operand may be represented in a product with weights of a few bits: as it is, as int8
    with a scale for each block (`i8x2`: 16 bits), or as bf16. It is a permission: targets may compute exactly.
    """

    TRAITS = (Trait.CONTRACTION,)
    PRECISION = Precision.WIDE_RESULT
    meaning = staticmethod(meanings.matmul)
    sharding = staticmethod(shardings.matmul)
    lhs = operand()
    rhs = operand()
    transpose_lhs = Bool(False)
    transpose_rhs = Bool(False)
    out_dtype = ElementType(None)
    activations = Str("exact", choices=("exact", "i8", "i8x2", "bf16"))

    @staticmethod
    def infer(
        lhs: TensorType,
        rhs: TensorType,
        *,
        transpose_lhs: bool,
        transpose_rhs: bool,
        out_dtype: DType | None,
        activations: str,
    ) -> TensorType:
        element = product_dtype("operands", lhs, rhs, out_dtype)
        if lhs.rank == 0 or rhs.rank == 0:
            raise OpError(f"operands must have rank 1 or more, got {lhs} and {rhs}")
        if (transpose_lhs and lhs.rank == 1) or (transpose_rhs and rhs.rank == 1):
            raise OpError("a vector cannot be transposed")
        left = lhs.shape if lhs.rank > 1 else (1, *lhs.shape)
        right = rhs.shape if rhs.rank > 1 else (*rhs.shape, 1)
        m, k = (left[-1], left[-2]) if transpose_lhs else left[-2:]
        k2, n = (right[-1], right[-2]) if transpose_rhs else right[-2:]
        require_equal_dims(k, k2, f"the contracted dims of {lhs} and {rhs}")
        try:
            shape = broadcast_shapes(left[:-2], right[:-2])
        except BroadcastDiffers as error:
            raise BroadcastDiffers(str(error), error.left, error.right, error.axis - 2, [left, right]) from None
        shape += ((m,) if lhs.rank > 1 else ()) + ((n,) if rhs.rank > 1 else ())
        return TensorType(shape, element)

    @classmethod
    def flops(
        cls, operands: Sequence[TensorType], results: Sequence[TensorType], **attributes: bool | str | DType | None
    ) -> int:
        left = operands[0].static_shape
        return 2 * math.prod(results[0].static_shape) * (left[-2] if attributes["transpose_lhs"] else left[-1])


class Einsum(RelaxOp, name="einsum"):
    """Sums of products by an equation such as `bij,bjk->bik`; `...` stands for leading dims that broadcast."""

    TRAITS = (Trait.CONTRACTION,)
    PRECISION = Precision.NARROW
    meaning = staticmethod(meanings.einsum)
    xs = operands()
    equation = Str()

    @staticmethod
    def infer(xs: list[TensorType], *, equation: str) -> TensorType:
        inputs, output = einsum_terms(equation, [x.rank for x in xs])
        same_dtype("operands", *xs)
        for x in xs:
            require_kind(x, NUMBER, "operands")
        dims: dict[str, Dim] = {}
        for x, labels in zip(xs, inputs, strict=True):
            for i, (label, dim) in enumerate(zip(labels, x.shape, strict=True)):
                known = dims.get(label, 1)
                try:
                    if label in labels[:i]:
                        require_equal_dims(x.shape[labels.index(label)], dim, "diagonal")
                    dims[label] = broadcast_dims(known, dim)
                except DimsDiffer as error:
                    text = f"index '{label}' of '{equation}' is {known} in one place and {dim} in another"
                    raise DimsDiffer(text, error.left, error.right) from None
        return xs[0].with_shape([dims[label] for label in output])

    @classmethod
    def flops(cls, operands: Sequence[TensorType], results: Sequence[TensorType], **attributes: str) -> int:
        inputs = attributes["equation"].replace(" ", "").partition("->")[0].split(",")
        sizes: dict[str, int] = {}
        for term, kind in zip(inputs, operands, strict=True):
            if "." in term:
                return 2 * math.prod(results[0].static_shape)
            sizes.update(zip(term, kind.static_shape, strict=True))
        return len(operands) * math.prod(sizes.values())


_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


def einsum_terms(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """Return index labels of each operand and of the result.

    The dims under `...` are labelled '0', '1' ... from the last.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    for term in [*terms, right]:
        if not _TERM.fullmatch(term):
            raise OpError(f"equation '{equation}' must have letters and at most one '...' per operand, got '{term}'")
    if len(terms) != len(ranks):
        raise OpError(f"equation '{equation}' is for {len(terms)} operands, got {len(ranks)}")
    spans = []
    for i, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        letters = len(term.replace("...", ""))
        if rank < letters or ("..." not in term and rank != letters):
            raise OpError(f"'{term}' of equation '{equation}' does not fit operand #{i} of rank {rank}")
        spans.append(rank - letters if "..." in term else 0)
    inputs = [_labels(term, span) for term, span in zip(terms, spans, strict=True)]
    used = [label for labels in inputs for label in labels]
    if not arrow:
        once = sorted(label for label in set(used) if used.count(label) == 1 and label.isalpha())
        return inputs, _labels("...", max(spans)) + once
    output = _labels(right, max(spans))
    for label in output:
        if label not in used:
            raise OpError(f"index '{label}' of the result is in no operand of equation '{equation}'")
        if output.count(label) > 1:
            raise OpError(f"index '{label}' is twice in the result of equation '{equation}'")
    return inputs, output


def _labels(term: str, span: int) -> list[str]:
    before, dots, after = term.partition("...")
    return [*before, *([str(i) for i in reversed(range(span))] if dots else []), *after]
