"""Vectors of adjacent elements: aligned accesses, single elements, products; and conditions that may be certain."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create


def is_aligned(form: IndexExpr, axis: int, count: int, *others: Dim) -> bool:
    """Return whether `count` indices along an axis are adjacent and start at a multiple; `others` are multiples too."""
    rest = [factor for variable, factor in form.terms.items() if variable != axis]
    if form.divisions:
        return False
    return D.is_certain(
        lambda: form.coefficient(axis) == 1 and all(n % count == 0 for n in (*rest, form.constant, *others))
    )


def load_vector(memory: ir.Value, place: ir.Value, count: int) -> Value:
    """Load adjacent elements from a multiple of their number."""
    element = memory.type.element_type
    return create("vector.load", ir.VectorType.get([count], element), memory, place, alignment=_bytes(element, count))


def store_vector(vector: ir.Value, memory: ir.Value, place: ir.Value) -> None:
    """Store a vector at a multiple of its length."""
    attributes = {"alignment": _bytes(vector.type.element_type, vector.type.shape[0])}
    ir.Operation.create("vector.store", operands=[vector, memory, place], attributes=attributes)


def element_at(vector: ir.Value, *position: int) -> Value:
    """Return an element of a vector, or a part with fewer dims."""
    kind, rest = vector.type.element_type, vector.type.shape[len(position) :]
    element = ir.VectorType.get(rest, kind) if rest else kind
    return create("vector.extract", element, vector, static_position=ir.DenseI64ArrayAttr.get(list(position)))


def spread(value: ir.Value, *shape: int) -> Value:
    """Return a vector whose lanes are all the scalar."""
    return create("vector.broadcast", ir.VectorType.get(shape, value.type), value)


def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value) -> Value:
    """Return a * b + c, of scalars or vectors, by the fastest method."""
    kind = c.type.element_type if isinstance(c.type, ir.VectorType) else c.type
    if isinstance(kind, ir.FloatType):
        return create("math.fma", c.type, a, b, c, fastmath=ir.Attribute.parse("#arith.fastmath<contract>"))
    return create("arith.addi", c.type, create("arith.muli", c.type, a, b), c)


def all_of(*conditions: Value | None) -> Value | None:
    """Return the conjunction of conditions; None stands for one that is certain."""
    result = None
    for condition in conditions:
        if condition is not None:
            result = condition if result is None else create("arith.andi", condition.type, result, condition)
    return result


def _bytes(element: ir.Type, count: int) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count * element_bytes(element))
