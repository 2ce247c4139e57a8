"""Recurrent layers: few time steps are unrolled; more, or a dynamic number, become a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.errors import DimsDiffer
from mirlo.dialects.relax.infer import require_equal_dims
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import LoopIteration, Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.runtime_sizes import as_scalar
from mirlo.frontends.onnx.values import AnyValue, Converted
from mirlo.frontends.tensor import Tensor, stack, where

MAX_UNROLLED_STEPS = 128
"""Most unrolled time steps: a loop is at most a tenth slower, and compiles in the time of one step."""

# activation, in lower case: relax operator, then default alpha and beta if it has them
_ACTIVATIONS: dict[str, tuple[str, float | None, float | None]] = {
    "relu": ("relu", None, None),
    "tanh": ("tanh", None, None),
    "sigmoid": ("sigmoid", None, None),
    "softsign": ("softsign", None, None),
    "softplus": ("softplus", None, None),
    "elu": ("elu", 1.0, None),
    "leakyrelu": ("leaky_relu", 0.01, None),
    "thresholdedrelu": ("thresholded_relu", 1.0, None),
    "hardsigmoid": ("hard_sigmoid", 0.2, 0.5),
}
Function = Callable[[Tensor], Tensor]
States = tuple[Tensor, ...]


@dataclass
class _Direction:
    """The operands of one direction of a layer."""

    node: Node
    functions: list[Function]
    clip: float | None
    hidden: Dim
    recurrent: Tensor
    """[gates * hidden, hidden]"""
    recurrent_bias: Tensor | None
    """[gates * hidden], if it is not part of the input projection already; else None."""
    quantize: Function | None = None
    """What an operand goes through before it is multiplied with quantized weights, [size, gates * hidden]."""
    peepholes: list[Tensor] = field(default_factory=list)

    def gate(self, index: int, value: Tensor) -> Tensor:
        """Clip, then apply the activation with this index."""
        if self.clip:
            value = value.clip(-self.clip, self.clip)
        return self.functions[index](value)

    def product(self, state: Tensor, weights: Tensor) -> Tensor:
        if self.quantize is not None:
            return self.quantize(state) @ weights
        return state.matmul(weights, transpose_rhs=True)

    def parts(self, value: Tensor, count: int, axis: int = -1) -> list[Tensor]:
        """Split along an axis into parts of the hidden size."""
        return [value] if count == 1 else value.split((self.hidden,) * count, axis)


@dataclass(frozen=True)
class QuantizedWeights:
    """How a layer reads weights that are quantized: [directions, size, gates * hidden]."""

    quantize: Function
    """What operands of products with the weights go through."""
    pick: Callable[[int, int], Tensor]
    """The weights of an input, of a direction, as real values."""


Step = Callable[[_Direction, Tensor, States], States]
"""The states after a step, from the projected input and the states before; the first state is the output."""


@converter("RNN")
def rnn(node: Node) -> Converted:
    return _layer(node, 1, 1, ("Tanh",), _rnn_step)


@converter("GRU")
def gru(node: Node) -> Converted:
    linear_before_reset = node.attr.bool("linear_before_reset", 0)
    step = _gru_linear_step if linear_before_reset else _gru_step
    return _layer(node, 3, 1, ("Sigmoid", "Tanh"), step, keep_recurrent_bias=linear_before_reset)


@converter("LSTM")
def lstm(node: Node) -> tuple[Tensor, ...]:
    return lstm_layer(node)


def lstm_layer(node: Node, quantized: QuantizedWeights | None = None) -> tuple[Tensor, ...]:
    """Convert an LSTM, whose weights may be quantized."""
    step = _lstm_coupled_step if node.attr.bool("input_forget", 0) else _lstm_step
    return _layer(node, 4, 2, ("Sigmoid", "Tanh", "Tanh"), step, quantized=quantized)


def _rnn_step(d: _Direction, x: Tensor, states: States) -> States:
    return (d.gate(0, x + d.product(states[0], d.recurrent)),)


def _gru_step(d: _Direction, x: Tensor, states: States) -> States:
    (h,) = states
    recurrent_z, recurrent_r, recurrent_h = d.parts(d.recurrent, 3, axis=0)
    xz, xr, xh = d.parts(x, 3)
    z = d.gate(0, xz + d.product(h, recurrent_z))
    r = d.gate(0, xr + d.product(h, recurrent_r))
    return (_blend(z, h, d.gate(1, xh + d.product(r * h, recurrent_h))),)


def _gru_linear_step(d: _Direction, x: Tensor, states: States) -> States:
    (h,) = states
    product = d.product(h, d.recurrent)
    if d.recurrent_bias is not None:
        product = product + d.recurrent_bias
    (xz, xr, xh), (hz, hr, hh) = d.parts(x, 3), d.parts(product, 3)
    z, r = d.gate(0, xz + hz), d.gate(0, xr + hr)
    return (_blend(z, h, d.gate(1, xh + r * hh)),)


def _blend(z: Tensor, h: Tensor, new: Tensor) -> Tensor:
    """Return (1 - z) * new + z * h."""
    return new + z * (h - new)


def _lstm_step(d: _Direction, x: Tensor, states: States, coupled: bool = False) -> States:
    h, c = states
    i, o, f, g = d.parts(x + d.product(h, d.recurrent), 4)
    if d.peepholes:
        i, f = i + d.peepholes[0] * c, f + d.peepholes[2] * c
    i, g = d.gate(0, i), d.gate(1, g)
    f = 1 - i if coupled else d.gate(0, f)
    c = f * c + i * g
    if d.peepholes:
        o = o + d.peepholes[1] * c
    return d.gate(0, o) * d.functions[2](c), c


def _lstm_coupled_step(d: _Direction, x: Tensor, states: States) -> States:
    return _lstm_step(d, x, states, coupled=True)


def _layer(
    node: Node,
    gates: int,
    states: int,
    defaults: Sequence[str],
    step: Step,
    keep_recurrent_bias: bool = False,
    quantized: QuantizedWeights | None = None,
) -> tuple[Tensor, ...]:
    """Convert all directions of a layer: Y, Y_h and for an LSTM Y_c."""
    batch_first = bool(node.attr.int("layout", 0))
    direction = node.attr.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    hidden = _hidden_size(node, quantized is not None)
    require_equal_dims(node.type(1).shape[0], count, f"the directions of '{direction}' and the first dim of input 'W'")
    x = node[0].permute((1, 0, 2)) if batch_first else node[0]
    length, batch, _ = x.type.shape
    functions = _functions(node, defaults, count)
    initial = [_initial(node, 5 + i, batch_first, (count, batch, hidden)) for i in range(states)]
    lengths = node.emit("expand_dims", node[4], axes=[1]) if node.has(4) else None
    run = _loop if not isinstance(length, int) or length > MAX_UNROLLED_STEPS else _unroll if length else _no_steps
    outputs: list[Tensor] = []
    finals: list[list[Tensor]] = [[] for _ in range(states)]
    for at in range(count):
        chosen = functions[at * len(defaults) : (at + 1) * len(defaults)]
        made, projected = _direction(node, at, x, gates, chosen, hidden, keep_recurrent_bias, quantized)
        backwards = direction == "reverse" or at == 1
        sequence, last = run(
            made, projected, tuple(pick_direction(node, s, at) for s in initial), step, backwards, lengths
        )
        outputs.append(sequence)
        for final, state in zip(finals, last, strict=True):
            final.append(state)
    y = stack(outputs, axis=1)
    last_states = [stack(final, axis=0) for final in finals]
    if batch_first:
        y = y.permute((2, 0, 1, 3))
        last_states = [state.permute((1, 0, 2)) for state in last_states]
    return (y, *last_states)


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


def _direction(
    node: Node,
    at: int,
    x: Tensor,
    gates: int,
    functions: list[Function],
    hidden: Dim,
    keep_recurrent_bias: bool,
    quantized: QuantizedWeights | None,
) -> tuple[_Direction, Tensor]:
    """Return one direction, and its projected input for all steps: [length, batch, gates * hidden]."""
    read = quantized.pick if quantized else lambda index, at: pick_direction(node, node[index], at)
    result = _Direction(
        node, functions, node.attr.float("clip", None), hidden, recurrent=read(2, at), recurrent_bias=None
    )
    result.quantize = quantized.quantize if quantized else None
    projected = result.product(x, read(1, at))
    if node.has(3):
        size = gates * hidden
        from_input, recurrent = pick_direction(node, node[3], at).split((size, size), 0)
        projected = projected + from_input
        if keep_recurrent_bias:
            result.recurrent_bias = recurrent
        else:
            projected = projected + recurrent
    if node.has(7):
        result.peepholes = list(result.parts(pick_direction(node, node[7], at), 3, axis=0))
    return result, projected


def pick_direction(node: Node, value: Tensor, at: int) -> Tensor:
    """Return the part of one direction: value[at]."""
    part = value.slice(0, at, 1)
    return node.emit("squeeze", part, axes=[0])


def _initial(node: Node, index: int, batch_first: bool, shape: tuple[Dim, ...]) -> Tensor:
    if not node.has(index):
        return node.emit("full", shape=shape, value=0.0, dtype=node.type(0).dtype)
    return node[index].permute((1, 0, 2)) if batch_first else node[index]


def _no_steps(
    d: _Direction, projected: Tensor, states: States, step: Step, backwards: bool, lengths: Tensor | None
) -> tuple[Tensor, States]:
    """Return the results for sequences of length 0: no outputs, and the initial states."""
    tensor_type = projected.type
    return d.node.emit("full", shape=(0, tensor_type.shape[1], d.hidden), value=0.0, dtype=tensor_type.dtype), states


def _unroll(
    d: _Direction, projected: Tensor, states: States, step: Step, backwards: bool, lengths: Tensor | None
) -> tuple[Tensor, States]:
    """Return the outputs of all steps, [length, batch, hidden], and the last states."""
    node = d.node
    length = projected.type.shape[0]
    assert isinstance(length, int)
    pieces = projected.split((1,) * length, 0) if length > 1 else [projected]
    inputs = [node.emit("squeeze", x, axes=[0]) for x in pieces]
    outputs: list[Tensor] = []
    for t in range(length)[:: -1 if backwards else 1]:
        number = None if lengths is None else node.constant(t, node.type(4))
        output, states = _stepped(d, inputs[t], states, step, number, lengths)
        outputs.append(output)
    return stack(outputs[:: -1 if backwards else 1], axis=0), states


def _loop(
    d: _Direction, projected: Tensor, states: States, step: Step, backwards: bool, lengths: Tensor | None
) -> tuple[Tensor, States]:
    """Return the same as `_unroll`, with a loop over the steps."""
    node = d.node
    length = projected.type.shape[0]

    def make(number: Tensor, going: Tensor, values: list[AnyValue]) -> tuple[AnyValue, list[AnyValue], list[AnyValue]]:
        at = node.ssa(number)
        if backwards:
            at = as_scalar(node, length - 1) - at
        x = projected.gather(at)
        position = None if lengths is None else at.cast(lengths.type.dtype)
        output, made = _stepped(d, x, tuple(map(node.ssa, values)), step, position, lengths)
        return going, list(made), [output]

    count = as_scalar(node, length)
    loop = LoopIteration(make, backwards=[backwards])
    *made, rows, _ = node.builder.loop(loop, count, None, list(states), length)
    return rows, tuple(map(node.ssa, made))


def _stepped(
    d: _Direction, x: Tensor, states: States, step: Step, number: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, States]:
    """Return the output of a step and the states after it: a finished sequence keeps its states, with zero output.

    `lengths`, [batch, 1], determines which sequences are finished at this step.
    """
    result = step(d, x, states)
    if number is None or lengths is None:
        return result[0], result
    node = d.node
    valid = number < lengths
    output = where(valid, result[0], node.constant(0, result[0].type))
    return output, tuple(where(valid, new, old) for new, old in zip(result, states, strict=True))


def _functions(node: Node, defaults: Sequence[str], count: int) -> list[Function]:
    """Return the activations of all directions; parameters are taken from the lists by those that need one."""
    names = node.attr.strs("activations", None) or list(defaults) * count
    if len(names) != len(defaults) * count:
        raise NodeError(f"attribute 'activations' must have {len(defaults) * count} names, got {len(names)}")
    alphas = iter(node.attr.floats("activation_alpha", []))
    betas = iter(node.attr.floats("activation_beta", []))
    return [_function(node, name, alphas, betas) for name in names]


def _function(node: Node, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    activation = _ACTIVATIONS.get(name.lower())
    if activation is None:
        known = ", ".join(_ACTIVATIONS)
        raise NodeError(f"attribute 'activations' names '{name}', which is not supported; supported: {known}")
    operator, alpha, beta = activation
    numbers = {}
    if alpha is not None:
        numbers["alpha"] = next(alphas, alpha)
    if beta is not None:
        numbers["beta"] = next(betas, beta)
    return lambda x: node.emit(operator, x, **numbers)
