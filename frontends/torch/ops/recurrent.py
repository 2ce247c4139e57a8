"""Recurrent layers: few time steps are unrolled, more become a loop."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.library.recurrent import (
    Cell,
    DirectionWeights,
    gru_cell,
    lstm_cell,
    recurrent_layer,
    relu_cell,
    tanh_cell,
)
from mirlo.frontends.tensor import Tensor, concat
from mirlo.frontends.torch.operation import AtenOperation
from mirlo.frontends.torch.registry import converter

CELLS: dict[str, Cell] = {"lstm": lstm_cell, "gru": gru_cell, "rnn_tanh": tanh_cell, "rnn_relu": relu_cell}


@converter("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def recurrent(
    op: AtenOperation, x: Tensor, states: Sequence[Tensor] | Tensor, params: Sequence[Tensor], has_biases: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> list[Tensor]:  # fmt: skip
    """Convert the layers of a recurrent network: the sequence, and the last states of all layers."""
    if train and dropout:
        raise UnsupportedOperation("drops elements, as in training: call eval() of its module")
    directions = 2 if bidirectional else 1
    parts = len(params) // (layers * directions)
    starts = [states] if isinstance(states, Tensor) else list(states)
    sequence = x.permute([1, 0, 2]) if batch_first else x
    last: list[list[Tensor]] = [[] for _ in starts]
    for layer in range(layers):
        first = layer * directions
        weights = [
            _weights(params[at * parts : (at + 1) * parts], has_biases) for at in range(first, first + directions)
        ]
        begin = [start[first : first + directions] for start in starts]
        sequence, finals = recurrent_layer(op.body, CELLS[op.name.split(".")[1]], sequence, begin, weights)
        for found, final in zip(last, finals, strict=True):
            found.append(final)
    return [sequence.permute([1, 0, 2]) if batch_first else sequence, *(concat(each, 0) for each in last)]


def _weights(params: Sequence[Tensor], has_biases: bool) -> DirectionWeights:
    """Return the weights of a direction; an LSTM may have a projection behind the others."""
    given, recurrent, *rest = params
    first, second = (rest.pop(0), rest.pop(0)) if has_biases else (None, None)
    return DirectionWeights(given, recurrent, first, second, rest[0] if rest else None)
