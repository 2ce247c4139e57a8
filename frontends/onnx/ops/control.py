"""Control flow. Loops with a known trip count are unrolled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.builder import WRONG
from mirlo.frontends.onnx.choices import RanksDiffer
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.functions import TooManyIterations
from mirlo.frontends.onnx.graph import GraphDef
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import (
    AnyValue,
    Converted,
    ListValue,
    ObjectValue,
    OptionalValue,
    Output,
)
from mirlo.frontends.tensor import Tensor, maximum, stack, where

MAX_UNROLLED_ITERATIONS = 1024
"""Most iterations to unroll; more would take too long to compile."""
MAX_COLLECTED_ITERATIONS = 1 << 20
"""Most iterations for which rows are reserved: exporters write the largest integer for a trip count without a bound."""
MAX_UNROLLED_NODES = 8192
"""Most nodes of an unrolled loop over all iterations, including nested loops."""


@converter("If")
def if_(node: Node) -> Converted:
    """Pick a branch if the condition is known; otherwise convert to scf.if."""
    then_branch, else_branch = node.attr.graph("then_branch"), node.attr.graph("else_branch")
    if node.value(0).array is not None:
        return node.builder.replace(then_branch if node.scalar(0) else else_branch)
    flag = node.builder.chosen_branch()
    if flag is None:
        return node.builder.conditional(node.value(0), then_branch, else_branch)
    return _only_branch(node, then_branch if flag else else_branch, flag)


def _only_branch(node: Node, graph: GraphDef, flag: bool) -> Converted:
    """Import the branch that the rest of the model accepts; the call checks that the condition picks it."""
    condition = node[0] if flag else ~node[0]
    result = where(condition, node.constant(np.int64(0)), node.constant(np.int64(WRONG)))
    what = "the condition picks the branch whose result has a rank with which the rest of the model is not valid"
    node.bind(result.reshape((1,)), what, [0])
    return node.builder.replace(graph)


@converter("Loop")
def loop(node: Node) -> Converted:
    """Unroll loops with a known trip count; convert others to scf.while."""
    body = node.attr.graph("body")
    carried = [node.any_value(i) for i in range(2, len(node.inputs))]
    if len(body.inputs) != 2 + len(carried) or len(body.outputs) < 1 + len(carried):
        raise NodeError(
            f"the body must have {2 + len(carried)} inputs and at least {1 + len(carried)} outputs, "
            f"got {len(body.inputs)} and {len(body.outputs)}"
        )
    limit, going = (node.value(i) if node.has(i) else None for i in range(2))
    expansion, unrolled = node.builder.expansion, None
    undecided: RanksDiffer | None = None
    declined = expansion.declined
    if body not in declined and all(value is None or value.array is not None for value in (limit, going)):
        before = set(declined)
        expansion.unrolling += 1
        try:
            unrolled = _unrolled(node, body, carried)
        except TooManyIterations:
            if expansion.unrolling > 1:
                declined.add(body)
                raise
        except RanksDiffer as error:
            undecided = error  # of one iteration: each would be decided on
        finally:
            expansion.unrolling -= 1
        if unrolled is not None:
            # What was found in a loop that stays says nothing of the same loops elsewhere, where more may be known.
            declined &= before
            return unrolled
    declined.add(body)
    if undecided is None:
        return _compiled(node, body, limit, going, carried)
    problems = node.builder.problems
    before_loop = len(problems)
    try:
        results = _compiled(node, body, limit, going, carried)
    except NodeError:
        raise undecided from None
    if len(problems) > before_loop:
        del problems[before_loop:]
        raise undecided
    return results


def _unrolled(node: Node, body: GraphDef, carried: list[AnyValue]) -> list[Output] | None:
    """Unroll the iterations; return None if their number depends on data or is large."""
    limit = node.scalar(0) if node.has(0) else None
    going = bool(node.scalar(1, True))
    if going and limit is not None and limit > MAX_UNROLLED_ITERATIONS:
        return None
    collected: list[list[AnyValue]] = [[] for _ in body.outputs[1 + len(carried) :]]
    if collected and not (going and (limit is None or limit > 0)):
        return None  # only the body tells the shape of what no iteration collects
    done, start = 0, node.builder.expansion.nodes
    while going and (limit is None or done < limit):
        if done >= MAX_UNROLLED_ITERATIONS:
            return None
        arguments = [node.constant(done, "i64"), node.constant(True), *carried]
        condition, *results = node.builder.branch(body, arguments, f"{done}/")
        if not isinstance(condition, Tensor) or condition.array is None:
            return None
        if condition.type.elements != 1:
            raise NodeError(f"the body's condition '{condition.name}' must be one bool, got {condition.type}")
        going = bool(condition.known)
        carried = results[: len(carried)]
        for sequence, value in zip(collected, results[len(carried) :], strict=True):
            sequence.append(value)
        done += 1
        rounds = done if limit is None or not going else int(limit)
        if (node.builder.expansion.nodes - start) // done * rounds > MAX_UNROLLED_NODES:
            raise TooManyIterations
    return [*carried, *(stacked(node, sequence, 0) for sequence in collected)]


def _compiled(
    node: Node, body: GraphDef, limit: Tensor | None, going: Tensor | None, carried: Sequence[AnyValue]
) -> list[Output]:
    if len(body.outputs) == 1 + len(carried):
        return list(node.builder.loop(body, limit, going, carried))
    if limit is None or (limit.array is not None and node.scalar(0) > MAX_COLLECTED_ITERATIONS):
        return list(node.builder.loop(body, limit, going, carried, D.UNKNOWN))
    most = maximum(node.single(0), node.constant(np.int64(0)))
    (room,) = node.bind(most.reshape((1,)), "the number of iterations")
    *outputs, used = node.builder.loop(body, limit, going, carried, room)
    (count,) = node.bind(used.reshape((1,)), "the number of iterations", [room])
    return [*outputs[: len(carried)], *(_first(node, rows, count) for rows in outputs[len(carried) :])]


def _first(node: Node, rows: Tensor, count: Dim) -> Tensor:
    return rows.slice(0, 0, count)


def stacked(node: Node, sequence: Sequence[AnyValue], axis: int) -> Tensor:
    """Stack scan outputs to one value."""
    if not sequence:
        raise NodeError("the loop has no iterations, so that the shape of what it collects is not known")
    values = []
    for value in sequence:
        if isinstance(value, (OptionalValue, ObjectValue)):
            raise NodeError(f"what the body collects in each iteration must be a tensor, got {value.kind}")
        values.append(node.ssa(value) if isinstance(value, (Tensor, ListValue)) else value)
    return stack(values, axis=axis)
