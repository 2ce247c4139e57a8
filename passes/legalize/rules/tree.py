"""Default rules of table lookup and decision trees."""

from __future__ import annotations

from functools import partial
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.compute import INDEX, Expr, LoopBuilder, TensorExpr, Variable, clamp, constant, select
from mirlo.passes.legalize.helpers import shape_of
from mirlo.passes.rules import legalize


@legalize("relax.find_sorted")
def find_sorted(op: Any, b: Any) -> Any:
    """Search without branches: each step advances by a power of two if the key there is not larger."""
    (count,) = shape_of(op.keys)

    def body(p: Any, x: TensorExpr, keys: TensorExpr) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            value = x.at(*axes)
            place: Expr = constant(-1, INDEX)
            step = 1 << max(count.bit_length() - 1, 0)
            while step and count:
                reached = place + step
                key = keys.at(clamp(reached, 0, count - 1))
                place = select((reached < count) & _not_larger(key, value), reached, place)
                step //= 2
            if not count:
                return constant(-1, "i64")
            found = keys.at(clamp(place, 0, count - 1))
            is_there = (place >= 0) & _not_larger(found, value) & _not_larger(value, found)
            return select(is_there, place.cast("i64"), constant(-1, "i64"))

        return p.compute(x.shape, element, name="find_sorted")

    return b.call_prim(body, op.x, op.keys)


def _not_larger(a: Expr, b: Expr) -> Expr:
    """Return a <= b, where NaN is larger than every other value and equal to itself."""
    return (a <= b) | b.differs(b) if a.dtype.is_float else a <= b


@legalize("relax.tree_leaves")
def tree_leaves(op: ir.OpView, b: Any) -> ir.Value:
    rows, trees = shape_of(op.output)
    features = shape_of(op.x)[1]

    def body(loops: LoopBuilder, x: Any, thresholds: Any, nodes: Any, roots: Any, output: Any) -> None:
        for row, tree in loops.nest((rows, trees), parallel=True):
            at = loops.variable(roots[tree].cast("i64"), "i64")
            for _ in loops.while_(partial(_is_inner, at)):
                node = loops.let(at.get().cast(INDEX))
                value = loops.let(x[row, clamp(nodes[node, 0].cast(INDEX), 0, D.maximum(features - 1, 0))])
                holds = loops.let(compared(value, loops.let(thresholds[node]), loops.let(nodes[node, 1]), op.mode))
                at.set(select(holds, nodes[node, 2], nodes[node, 3]).cast("i64"))
            output[row, tree] = constant(-1, "i64") - at.get()

    return b.call_loops(body, op.x, op.thresholds, op.nodes, op.roots)


def _is_inner(at: Variable) -> Expr:
    return at.get() >= 0


def compared(value: Expr, bound: Expr, how: Expr, mode: int) -> Expr:
    """Return whether a node's comparison holds: `mode` if all nodes share one, or `how` if `mode` is -1."""
    tests = [value <= bound, value < bound, value >= bound, value > bound, value.equals(bound), value.differs(bound)]
    if mode >= 0:
        found = tests[mode & 7]
        return found | value.differs(value) if mode & 8 else found
    kind = how & 7
    found = tests[0]
    for number, test in enumerate(tests[1:], 1):
        found = select(kind.equals(number), test, found)
    return found | (value.differs(value) & (how & 8).equals(8))
