"""Recurrent layers, in terms of those of ONNX: few time steps are unrolled, more become a loop."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.onnx.ops import recurrent as onnx
from mirlo.frontends.tensor import Tensor, concat, stack
from mirlo.frontends.torch.onnx_node import onnx_layer
from mirlo.frontends.torch.operation import AtenOperation
from mirlo.frontends.torch.ops.contract import product
from mirlo.frontends.torch.ops.control import Step, row_at, scanned
from mirlo.frontends.torch.registry import converter

GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
"""Where ONNX's gates are among PyTorch's: input, output, forget, cell for LSTM; update, reset, hidden for GRU."""


@converter("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def recurrent(
    op: AtenOperation, x: Tensor, states: Sequence[Tensor] | Tensor, params: Sequence[Tensor], has_biases: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> list[Tensor]:  # fmt: skip
    """Convert the layers of a recurrent network: the sequence, and the last states of all layers."""
    if train and dropout:
        raise UnsupportedOperation("drops elements, as in training: call eval() of its module")
    directions, parts = 2 if bidirectional else 1, 4 if has_biases else 2
    kind = op.name.split(".")[1]
    is_projected = len(params) != layers * directions * parts
    if is_projected:
        parts += 1
    starts = [states] if isinstance(states, Tensor) else list(states)
    sequence = x.permute([1, 0, 2]) if batch_first else x
    last: list[list[Tensor]] = [[] for _ in starts]
    for layer in range(layers):
        first = layer * directions
        rows = [params[(first + at) * parts : (first + at + 1) * parts] for at in range(directions)]
        begin = [start.slice(0, first, directions) for start in starts]
        if is_projected:
            sequence, finals = _projected_layer(op, sequence, begin, rows)
        else:
            sequence, finals = _layer(op, kind, sequence, begin, rows, has_biases)
        for found, final in zip(last, finals, strict=True):
            found.append(final)
    ends = [made[0] if layers == 1 else concat(made, 0) for made in last]
    return [sequence.permute([1, 0, 2]) if batch_first else sequence, *ends]


def _layer(
    op: AtenOperation,
    kind: str,
    x: Tensor,
    states: Sequence[Tensor],
    rows: Sequence[Sequence[Tensor]],
    has_biases: bool,
) -> tuple[Tensor, list[Tensor]]:
    """Return the outputs of all directions, one after the other in the last dim, and their last states."""
    given = [stack([_reordered(op, kind, row[index]) for row in rows], 0) for index in (0, 1)]
    bias = None
    if has_biases:
        both = [concat([_reordered(op, kind, row[index]) for index in (2, 3)], 0) for row in rows]
        bias = stack(both, 0)
    hidden = op.fixed(rows[0][1].shape[1], "a size of states")
    words: dict[str, object] = {
        "hidden_size": hidden, "direction": "bidirectional" if len(rows) == 2 else "forward",
    }  # fmt: skip
    if kind == "gru":
        words["linear_before_reset"] = 1
    if kind == "rnn_relu":
        words["activations"] = ["Relu"] * len(rows)
    convert = {"lstm": onnx.lstm, "gru": onnx.gru}.get(kind, onnx.rnn)
    output, *finals = onnx_layer(op, convert, [x, *given, bias, None, *states], **words)
    joined = output.permute([0, 2, 1, 3])  # [length, batch, directions, hidden]
    return joined.reshape((*joined.shape[:2], hidden * len(rows))), finals


def _projected_layer(
    op: AtenOperation, x: Tensor, states: Sequence[Tensor], rows: Sequence[Sequence[Tensor]]
) -> tuple[Tensor, list[Tensor]]:
    """Return the outputs and the last states of an LSTM whose outputs go through a matrix, which ONNX has not."""
    sequences: list[Tensor] = []
    finals: list[list[Tensor]] = [[], []]
    length = x.shape[0]
    for at, params in enumerate(rows):
        begin = [state.slice(0, at, 1).reshape(state.shape[1:]) for state in states]
        projected = product(op, x, params[0], transposed=True)
        for bias in params[2:-1]:
            projected = projected + bias
        given = projected.flip([0]) if at else projected
        step = _projected_step(op, given, params[1], params[-1])
        *last, output = scanned(op, step, begin, [x.type.with_shape((length, *begin[0].shape))], length)
        sequences.append(output.flip([0]) if at else output)
        for found, state in zip(finals, last, strict=True):
            found.append(state)
    joined = sequences[0] if len(sequences) == 1 else concat(sequences, 2)
    return joined, [stack(each, 0) for each in finals]


def _projected_step(op: AtenOperation, projected: Tensor, recurrent: Tensor, matrix: Tensor) -> Step:
    size = op.fixed(recurrent.shape[0], "a number of gates") // 4

    def step(at: Tensor | int, carried: Sequence[Tensor]) -> list[Tensor]:
        hidden, cell = carried
        gates = row_at(op, projected, at) + product(op, hidden, recurrent, transposed=True)
        parts = [gates.slice(1, size * gate, size) for gate in range(4)]
        enter, forget, leave = (parts[gate].sigmoid() for gate in (0, 1, 3))
        cell = forget * cell + enter * parts[2].tanh()
        hidden = product(op, leave * cell.tanh(), matrix, transposed=True)
        return [hidden, cell, hidden]

    return step


def _reordered(op: AtenOperation, kind: str, weight: Tensor) -> Tensor:
    """Return weights with their gates in the order of ONNX."""
    order = GATES[kind]
    if len(order) == 1:
        return weight
    size = weight.shape[0] // len(order)
    parts = [weight.slice(0, size * gate, size) for gate in order]
    return concat(parts, 0)
