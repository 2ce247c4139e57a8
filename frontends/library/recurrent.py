"""Recurrent layers: cells, and layers of them over sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirlo.frontends.builder import GraphBuilder
from mirlo.frontends.library.loops import Step, row_at, scan
from mirlo.frontends.tensor import Tensor, concat, stack

Cell = Callable[[Tensor, Tensor, Sequence[Tensor]], list[Tensor]]
"""Takes the parts of the gates that are of the input and of the state, and the states; returns the next states."""


def lstm_cell(given: Tensor, recurrent: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Return the next hidden state and cell; the gates are input, forget, cell, output."""
    _, cell = states
    enter, forget, new, leave = _gates(given + recurrent, 4)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return [leave.sigmoid() * cell.tanh(), cell]


def gru_cell(given: Tensor, recurrent: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Return the next hidden state, whose reset gate is applied after the product; gates: reset, update, new."""
    (hidden,) = states
    (xr, xz, xn), (hr, hz, hn) = _gates(given, 3), _gates(recurrent, 3)
    reset, update = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    new = (xn + reset * hn).tanh()
    return [new + update * (hidden - new)]


def tanh_cell(given: Tensor, recurrent: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Return the next hidden state."""
    return [(given + recurrent).tanh()]


def relu_cell(given: Tensor, recurrent: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Return the next hidden state."""
    return [(given + recurrent).relu()]


def _gates(x: Tensor, count: int) -> list[Tensor]:
    return x.split([x.shape[-1] // count] * count, -1)


@dataclass(frozen=True)
class DirectionWeights:
    """The weights of one direction of a layer: products are with their transposes, gates are along the first dim."""

    given: Tensor
    recurrent: Tensor
    given_bias: Tensor | None = None
    recurrent_bias: Tensor | None = None
    projection: Tensor | None = None
    """What the hidden state is multiplied with after each step."""


def recurrent_layer(
    builder: GraphBuilder, cell: Cell, x: Tensor, states: Sequence[Tensor], directions: Sequence[DirectionWeights]
) -> tuple[Tensor, list[Tensor]]:
    """Return the outputs [length, batch, directions * hidden], and the last states [directions, batch, hidden].

    `x` is [length, batch, size]; the second direction runs backwards.
    """
    sequences: list[Tensor] = []
    finals: list[list[Tensor]] = [[] for _ in states]
    for at, weights in enumerate(directions):
        begin = [state[at] for state in states]
        given = _biased(x.matmul(weights.given, transpose_rhs=True), weights.given_bias)
        rows = [x.type.with_shape((x.shape[0], *begin[0].shape))]
        *last, output = scan(builder, _step(cell, given, weights), begin, rows, x.shape[0], backwards=at == 1)
        sequences.append(output)
        for found, state in zip(finals, last, strict=True):
            found.append(state)
    return concat(sequences, 2), [stack(each, 0) for each in finals]


def _step(cell: Cell, given: Tensor, weights: DirectionWeights) -> Step:
    def step(at: Tensor | int, states: Sequence[Tensor]) -> list[Tensor]:
        recurrent = _biased(states[0].matmul(weights.recurrent, transpose_rhs=True), weights.recurrent_bias)
        hidden, *others = cell(row_at(given, at), recurrent, states)
        if weights.projection is not None:
            hidden = hidden.matmul(weights.projection, transpose_rhs=True)
        return [hidden, *others, hidden]

    return step


def _biased(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias
