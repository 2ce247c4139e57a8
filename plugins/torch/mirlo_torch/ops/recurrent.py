"""Recurrent layers: few time steps are unrolled, more become a loop."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Tensor, UnsupportedOperation, concat
from mirlo.extend.library import Cell, Direction, linear_gru_step, lstm_step, recurrent_layer, rnn_step
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter

CELLS = {
    "lstm": Cell(lstm_step, "ifno", (Tensor.sigmoid, Tensor.tanh, Tensor.tanh)),
    "gru": Cell(linear_gru_step, "run", (Tensor.sigmoid, Tensor.tanh), keeps_recurrent_bias=True),
    "rnn_tanh": Cell(rnn_step, "n", (Tensor.tanh,)),
    "rnn_relu": Cell(rnn_step, "n", (Tensor.relu,)),
}


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
    cell = CELLS[op.name.split(".")[1]]
    last: list[list[Tensor]] = [[] for _ in starts]
    for layer in range(layers):
        first = layer * directions
        weights = [
            _direction(cell, params[at * parts : (at + 1) * parts], has_biases, at > first)
            for at in range(first, first + directions)
        ]
        begin = [start[first : first + directions] for start in starts]
        outputs, finals = recurrent_layer(op.builder, sequence, begin, weights)
        sequence = concat(outputs, 2)
        for collected, final in zip(last, finals, strict=True):
            collected.append(final)
    return [sequence.permute([1, 0, 2]) if batch_first else sequence, *(concat(each, 0) for each in last)]


def _direction(cell: Cell, params: Sequence[Tensor], has_biases: bool, is_backwards: bool) -> Direction:
    """Return a direction of a layer; an LSTM may have a projection after the other weights."""
    input_weights, recurrent, *rest = params
    first, second = (rest.pop(0), rest.pop(0)) if has_biases else (None, None)
    projection = rest[0] if rest else None
    return Direction(cell, input_weights, recurrent, first, second, projection, is_backwards=is_backwards)
