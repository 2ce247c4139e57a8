"""Default rule of einsum: one contraction after the other, each a reduction block."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.matmul import einsum_terms
from mirlo.dialects.tir.compute import Expr, TensorExpr
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import shape_of, wide
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

Term = tuple[TensorExpr, list[str]]


@legalize("relax.einsum")
def einsum(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    xs = list(op.xs)
    shapes = [shape_of(x) for x in xs]
    inputs, output = einsum_terms(op.equation, [len(shape) for shape in shapes])
    sizes: dict[str, Dim] = {}
    for labels, shape in zip(inputs, shapes, strict=True):
        for label, dim in zip(labels, shape, strict=True):
            sizes[label] = dim if sizes.get(label, 1) == 1 else sizes[label]

    def body(p: PrimBuilder, *tensors: TensorExpr) -> TensorExpr:
        element = tensors[0].dtype
        left: list[Term] = list(zip(tensors, inputs, strict=True))
        while len(left) > 2:
            i, j = _cheapest(left, sizes)
            second, first = left.pop(j), left.pop(i)
            needed = {label for _, labels in left for label in labels} | set(output)
            kept = [label for label in dict.fromkeys([*first[1], *second[1]]) if label in needed]
            left.append((_contract(p, [first, second], kept, sizes), kept))
        result = _contract(p, left, output, sizes)
        return result if result.dtype is element else p.compute(result.shape, lambda *at: result.at(*at).cast(element))

    return b.call_prim(body, *xs)


def _cheapest(terms: Sequence[Term], sizes: dict[str, Dim]) -> tuple[int, int]:
    """Return the pair of operands whose contraction needs the fewest products."""
    pairs = [(i, j) for i in range(len(terms)) for j in range(i + 1, len(terms))]
    return min(pairs, key=lambda pair: D.product([sizes[label] for label in {*terms[pair[0]][1], *terms[pair[1]][1]}]))


def _contract(p: PrimBuilder, terms: Sequence[Term], output: Sequence[str], sizes: dict[str, Dim]) -> TensorExpr:
    """Emit the product of the operands, summed over the labels that are not in the output."""
    summed = [label for label in dict.fromkeys(label for _, labels in terms for label in labels) if label not in output]

    def element(*axes: Expr) -> Expr:
        position = dict(zip([*output, *summed], axes, strict=True))
        factors = []
        for tensor, labels in terms:
            dims = zip(labels, tensor.shape, strict=True)
            factors.append(
                wide(tensor.at(*(0 if dim == 1 and sizes[label] != 1 else position[label] for label, dim in dims)))
            )
        return reduce(mul, factors)

    shape = [sizes[label] for label in output]
    if not summed:
        return p.compute(shape, element, name="einsum")
    return p.reduce("add", shape, [sizes[label] for label in summed], element, name="einsum")
