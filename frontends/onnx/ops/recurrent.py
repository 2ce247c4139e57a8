"""Recurrent layers: few time steps are unrolled; more, or a dynamic number, become a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from mirlo.dialects.core.dims import Dim, DimsDiffer
from mirlo.dialects.relax.infer import require_equal_dims, require_equal_shapes
from mirlo.frontends.library.recurrent import (
    Cell,
    Direction,
    Function,
    coupled_lstm_step,
    gru_step,
    linear_gru_step,
    lstm_step,
    recurrent_layer,
    rnn_step,
    times_transposed,
)
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter, relax_class
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, stack
from mirlo.runtime.records import dataclass

ACTIVATIONS = {
    name.lower(): relax_class(name)
    for name in (
        "Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "Elu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid",
    )
}  # fmt: skip
"""By name in lower case, as layers may spell it."""


@dataclass(frozen=True)
class QuantizedWeights:
    """Quantized weights of a layer, [directions, size, gates * hidden], and how they are read."""

    quantize: Function
    """What operands of products with the weights go through."""
    pick: Callable[[int, int], Tensor]
    """The weights of an input, of a direction, as real values."""


@converter("RNN")
def rnn(node: Node) -> Converted:
    return _layer(node, Cell(rnn_step, "n", ()), 1, ("Tanh",))


@converter("GRU")
def gru(node: Node) -> Converted:
    is_linear = node.attr.bool("linear_before_reset", 0)
    cell = Cell(linear_gru_step if is_linear else gru_step, "urn", (), keeps_recurrent_bias=is_linear)
    return _layer(node, cell, 1, ("Sigmoid", "Tanh"))


@converter("LSTM")
def lstm(node: Node) -> tuple[Tensor, ...]:
    return lstm_layer(node)


def lstm_layer(node: Node, quantized: QuantizedWeights | None = None) -> tuple[Tensor, ...]:
    """Convert an LSTM, whose weights may be quantized."""
    step = coupled_lstm_step if node.attr.bool("input_forget", 0) else lstm_step
    return _layer(node, Cell(step, "iofn", ()), 2, ("Sigmoid", "Tanh", "Tanh"), quantized)


def _layer(
    node: Node, cell: Cell, states: int, defaults: Sequence[str], quantized: QuantizedWeights | None = None
) -> tuple[Tensor, ...]:
    """Convert all directions of a layer: Y, Y_h and for an LSTM Y_c."""
    batch_first = bool(node.attr.int("layout", 0))
    direction = node.attr.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    hidden = _hidden_size(node, quantized is not None)
    require_equal_dims(node.type(1).shape[0], count, f"the directions of '{direction}' and the first dim of input 'W'")
    _require_gates(node, len(cell.gates) * hidden, quantized is not None)
    x = node[0].permute((1, 0, 2)) if batch_first else node[0]
    functions = _functions(node, defaults, count)
    initial = [_initial(node, 5 + i, batch_first, (count, x.shape[1], hidden)) for i in range(states)]
    directions = []
    for at in range(count):
        own = replace(cell, functions=tuple(functions[at * len(defaults) : (at + 1) * len(defaults)]))
        directions.append(_direction(node, own, at, direction == "reverse" or at == 1, quantized))
    outputs, finals = recurrent_layer(
        node.builder, x, initial, directions, node[4].expand_dims(1) if node.has(4) else None
    )
    y = stack(outputs, axis=1)
    if batch_first:
        y, finals = y.permute((2, 0, 1, 3)), [state.permute((1, 0, 2)) for state in finals]
    return (y, *finals)


def _hidden_size(node: Node, is_quantized: bool) -> Dim:
    """Return the size of a state; check the ranks of X, W and R."""
    for i in range(3):
        if node.type(i).rank != 3:
            raise NodeError(f"input '{'XWR'[i]}' must have 3 dims, got {node.type(i)}")
    hidden = node.type(2).shape[1 if is_quantized else -1]
    wanted = node.attr.int("hidden_size") if "hidden_size" in node.attr else hidden
    if wanted != hidden:
        raise DimsDiffer(f"attribute 'hidden_size' is {wanted}, but the weights are for {hidden}", hidden, wanted)
    return hidden


def _require_gates(node: Node, size: Dim, is_quantized: bool) -> None:
    """Require that weights and biases are those of all gates."""
    for index, axis, wanted in (
        (1, 2 if is_quantized else 1, size),
        (2, 2 if is_quantized else 1, size),
        (3, 1, 2 * size),
    ):
        if node.has(index):
            text = f"axis {axis} of input '{node.input_name(index)}' and the gates of the layer"
            require_equal_dims(node.type(index).shape[axis], wanted, text)


def _direction(
    node: Node, cell: Cell, at: int, is_backwards: bool, quantized: QuantizedWeights | None
) -> Direction:  # fmt: skip
    """Return one direction of the layer."""

    def quantized_product(x: Tensor, weights: Tensor) -> Tensor:
        assert quantized is not None
        return quantized.quantize(x) @ weights

    input_weights, recurrent = (quantized.pick(i, at) if quantized else node[i][at] for i in (1, 2))
    biases = node[3][at].halves(0) if node.has(3) else (None, None)
    return Direction(
        cell, input_weights, recurrent, given_bias=biases[0], recurrent_bias=biases[1],
        peepholes=_thirds(node[7][at]) if node.has(7) else (), is_backwards=is_backwards,
        clip=node.attr.float("clip", None), product=quantized_product if quantized else times_transposed,
    )  # fmt: skip


def _thirds(x: Tensor) -> list[Tensor]:
    return x.split([x.shape[0] // 3] * 3, 0)


def _initial(node: Node, index: int, batch_first: bool, shape: tuple[Dim, ...]) -> Tensor:
    """Return a state before the first step: an input, or zeros."""
    if not node.has(index):
        return node.emit("full", shape=shape, value=0.0, dtype=node.type(0).dtype)
    state = node[index].permute((1, 0, 2)) if batch_first else node[index]
    require_equal_shapes(state.shape, shape, f"input '{node.input_name(index)}' and the states of the layer")
    return state


def _functions(node: Node, defaults: Sequence[str], count: int) -> list[Function]:
    """Return the activations of all directions; an activation with parameters takes the next ones of the lists."""
    names = node.attr.strs("activations", None) or list(defaults) * count
    if len(defaults) == 1 and len(names) == 2:
        names = names[:count]  # the default in the schema of RNN names both directions, also where there is one
    if len(names) != len(defaults) * count:
        raise NodeError(f"attribute 'activations' must have {len(defaults) * count} names, got {len(names)}")
    rests = {key: iter(node.attr.floats(f"activation_{key}", [])) for key in ("alpha", "beta")}
    return [_function(node, name, rests) for name in names]


def _function(node: Node, name: str, rests: Mapping[str, Iterator[float]]) -> Function:
    operator = ACTIVATIONS.get(name.lower())
    if operator is None:
        known = ", ".join(ACTIVATIONS)
        raise NodeError(f"attribute 'activations' names '{name}', which is not supported; supported: {known}")
    declared = operator._attributes
    numbers = {key: next(rest, declared[key].default) for key, rest in rests.items() if key in declared}
    return lambda x: node.emit(operator, x, **numbers)
