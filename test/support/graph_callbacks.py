"""Calls of functions of users in graphs: branches, loops, recurrent layers, experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.extend import library
from mirlo.extend.frontend import GraphBuilder, ParameterStore, Tensor
from mirlo.extend.ops import TensorType


def in_a_graph(fill: Callable[[GraphBuilder, Tensor], Any]) -> None:
    """Build a graph of two numbers."""
    with make_context(), ir.Location.unknown():
        x = TensorType.of((2,), "f32").to_mlir()
        with ir.InsertionPoint(ir.Module.create().body):
            function = func.FuncOp("main", ([x], []))
        builder = GraphBuilder("main", ParameterStore())
        with builder.inside(function.add_entry_block()):
            fill(builder, builder.tensor(function.entry_block.arguments[0]))


def of_choose(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: b.choose(b.constant(True, "bool"), [x.type], [lambda: made(), lambda: [x]]))


def of_join(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: b.branches(b.full(b.constant(True, "bool")), [lambda: [x]] * 2, lambda one, other: made()))


def of_yielded(made: Callable[[], Any]) -> None:
    in_a_graph(
        lambda b, x: b.branches(
            b.full(b.constant(True, "bool")), [lambda: [x]] * 2, lambda one, other: lambda results: made()
        )
    )


def of_condition(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: b.repeat([x], lambda values: made(), lambda values: values))


def of_body(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: b.repeat([x], lambda values: b.constant(False, "bool"), lambda values: made()))


def of_counted_body(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: b.repeat_times(2, [x], lambda position, values: made()))


def of_low_condition(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: b.loop_while([b.full(x)], lambda values: made(), lambda values: values))


def of_low_body(made: Callable[[], Any]) -> None:
    in_a_graph(
        lambda b, x: b.loop_while([b.full(x)], lambda values: b.full(b.constant(False, "bool")), lambda values: made())
    )


def of_scan(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: library.scan_rows(b, lambda at, carried: made(), [x], [], 300))


def of_unrolled_scan(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: library.scan_rows(b, lambda at, carried: made(), [x], [], 2))


def recurrent(step: Callable[..., Any], activation: Callable[..., Any], product: Callable[..., Any] | None) -> None:
    """Build a recurrent layer of one step."""

    def fill(b: GraphBuilder, x: Tensor) -> Any:
        weights = b.constant(np.ones((2, 2), np.float32))
        given = {} if product is None else {"product": product}
        direction = library.Direction(library.Cell(step, "n", (activation,)), weights, weights, **given)
        state = b.constant(np.ones((1, 1, 2), np.float32))
        return library.recurrent_layer(b, x.reshape((1, 1, 2)), [state], [direction])

    in_a_graph(fill)


def of_cell(made: Callable[[], Any]) -> None:
    recurrent(lambda direction, x, states: made(), lambda x: x, None)


def of_activation(made: Callable[[], Any]) -> None:
    recurrent(lambda direction, x, states: [direction.new(x, 0)], lambda x: made(), None)


def of_product(made: Callable[[], Any]) -> None:
    recurrent(lambda direction, x, states: [x], lambda x: x, lambda x, weights: made())


def experts(bind: Callable[..., Any] | None, compute: Callable[..., Any]) -> None:
    """Build a mixture of two experts."""

    def fill(b: GraphBuilder, x: Tensor) -> Any:
        rows, chosen = x.reshape((1, 2)), b.constant(np.zeros((1, 1), np.int64))
        numbers = b.constant(np.arange(2).reshape(1, 2))
        bound = bind or (lambda values, most: b.bind(values, "n", most))
        return library.mix_experts(b, rows, chosen, b.constant(np.ones((1, 1), np.float32)), numbers, bound, compute)

    in_a_graph(fill)


def of_bound_sizes(made: Callable[[], Any]) -> None:
    experts(lambda values, most: made(), lambda numbers, position, rows: rows)


def of_expert(made: Callable[[], Any]) -> None:
    experts(lambda values, most: [0, 1], lambda numbers, position, rows: made())


def packed_sequences(bind: Callable[..., Any] | None, indices: Callable[..., Any] | None) -> None:
    """Describe two tokens of one sequence, whose rows are in a page of four."""

    def fill(b: GraphBuilder, x: Tensor) -> Any:
        ends, past, table = (b.constant(np.array(numbers)) for numbers in ([0, 2], [1], [[0]]))
        bound = bind or (lambda values, what, most: b.bind(values, "n", what, bounds=most))
        counted = indices or (lambda dim: b.constant(np.arange(dim)))
        return library.PackedSequences(b, bound, counted, 2, ends, past, table, 4)

    in_a_graph(fill)


def of_bound_pages(made: Callable[[], Any]) -> None:
    packed_sequences(lambda values, what, most: made(), None)


def of_indices(made: Callable[[], Any]) -> None:
    packed_sequences(None, lambda dim: made())


KINDS: dict[Callable[..., None], set[str]] = {
    of_choose: set(),
    of_join: {"class", "function"},
    of_yielded: {"list", "tuple"},
    of_condition: set(),
    of_body: set(),
    of_counted_body: set(),
    of_low_condition: set(),
    of_low_body: {"None"},
    of_scan: set(),
    of_unrolled_scan: set(),
    of_cell: set(),
    of_activation: set(),
    of_product: set(),
    of_bound_sizes: set(),
    of_expert: set(),
    of_bound_pages: set(),
    of_indices: set(),
}
"""The functions that call a callback, each with the names of values that are valid results or other errors."""
