"""Recurrent layers: cells, and layers of them over sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.core.errors import OpError
from mirlo.frontends.builder import GraphBuilder
from mirlo.frontends.library.loops import Step, row_at, scan
from mirlo.frontends.tensor import ONE_TENSOR, Tensor, expected_tensors, number, stack, where
from mirlo.runtime.callbacks import callback, check_callbacks, checked
from mirlo.runtime.records import dataclass

Function = Callable[[Tensor], Tensor]
"""An activation."""


def times_transposed(x: Tensor, weights: Tensor) -> Tensor:
    """Return the product with transposed weights, [gates * hidden, size]."""
    return x.matmul(weights, transpose_rhs=True)


@dataclass(frozen=True)
class Cell:
    """The formula of a recurrent layer."""

    step: Callable[[Direction, Tensor, Sequence[Tensor]], list[Tensor]]
    """Takes a direction, the part of the gates that is of the input, and the states; returns the next states."""
    gates: str
    """The gates in the order in which weights have them: input, forget, output, reset, update, new."""
    functions: tuple[Function, ...]
    """The activations: of gates, of the new value, of the cell."""
    keeps_recurrent_bias: bool = False
    """Whether the bias of the state's product is not simply added to that of the input's."""

    def __post_init__(self) -> None:
        functions = tuple(checked(each, ONE_TENSOR, "an activation of a cell", OpError) for each in self.functions)
        object.__setattr__(self, "functions", functions)


@dataclass(frozen=True)
class Direction:
    """One direction of a layer: its cell and its weights, whose gates are along one dim."""

    cell: Cell
    given: Tensor
    recurrent: Tensor
    given_bias: Tensor | None = None
    recurrent_bias: Tensor | None = None
    projection: Tensor | None = None
    """What the hidden state is multiplied with after each step."""
    peepholes: Sequence[Tensor] = ()
    """What the cell of an LSTM is multiplied with for the gates input, output, forget."""
    is_backwards: bool = False
    clip: float | None = None
    """The largest absolute value before an activation."""
    product: Callable[[Tensor, Tensor], Tensor] = callback(*ONE_TENSOR, default=times_transposed)
    """Multiplies rows with weights."""

    def __post_init__(self) -> None:
        check_callbacks(self, "a direction of a recurrent layer", OpError)

    def gate(self, x: Tensor) -> Tensor:
        """Return an activated gate."""
        return self.cell.functions[0](self._clipped(x))

    def new(self, x: Tensor, index: int = 1) -> Tensor:
        """Return an activated new value."""
        return self.cell.functions[index](self._clipped(x))

    def _clipped(self, x: Tensor) -> Tensor:
        return x.clip(-self.clip, self.clip) if self.clip else x

    def recur(self, hidden: Tensor) -> Tensor:
        """Return the part of the gates that is computed from the state."""
        product = self.product(hidden, self.recurrent)
        return _biased(product, self.recurrent_bias) if self.cell.keeps_recurrent_bias else product

    def split(self, x: Tensor, axis: int = -1) -> dict[str, Tensor]:
        """Return the gates, by their letters."""
        count = len(self.cell.gates)
        return dict(zip(self.cell.gates, x.split([x.shape[axis] // count] * count, axis), strict=True))

    def projected(self, x: Tensor) -> Tensor:
        """Return the part of the gates that is computed from the input, for all steps at once."""
        result = _biased(self.product(x, self.given), self.given_bias)
        return result if self.cell.keeps_recurrent_bias else _biased(result, self.recurrent_bias)


def _biased(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias


def rnn_step(d: Direction, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Return the next hidden state."""
    return [d.new(x + d.recur(states[0]), 0)]


def gru_step(d: Direction, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Return the next hidden state, whose reset gate is applied before the product."""
    (hidden,) = states
    projected, weights = d.split(x), d.split(d.recurrent, 0)
    update, reset = (d.gate(projected[gate] + d.product(hidden, weights[gate])) for gate in "ur")
    new = d.new(projected["n"] + d.product(reset * hidden, weights["n"]))
    return [new + update * (hidden - new)]


def linear_gru_step(d: Direction, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Return the next hidden state, whose reset gate is applied after the product."""
    (hidden,) = states
    projected, recurrent = d.split(x), d.split(d.recur(hidden))
    update, reset = (d.gate(projected[gate] + recurrent[gate]) for gate in "ur")
    new = d.new(projected["n"] + reset * recurrent["n"])
    return [new + update * (hidden - new)]


def lstm_step(d: Direction, x: Tensor, states: Sequence[Tensor], is_coupled: bool = False) -> list[Tensor]:
    """Return the next hidden state and cell; a coupled forget gate is 1 minus the input gate."""
    hidden, cell = states
    gates = d.split(x + d.recur(hidden))
    for gate, weight in zip("iof", d.peepholes, strict=False):
        if gate != "o":
            gates[gate] = gates[gate] + weight * cell
    enter, new = d.gate(gates["i"]), d.new(gates["n"])
    cell = (1 - enter if is_coupled else d.gate(gates["f"])) * cell + enter * new
    leave = gates["o"] + d.peepholes[1] * cell if d.peepholes else gates["o"]
    return [d.gate(leave) * d.cell.functions[2](cell), cell]


def coupled_lstm_step(d: Direction, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Return the next hidden state and cell of `lstm_step` with coupled gates."""
    return lstm_step(d, x, states, is_coupled=True)


def recurrent_layer(
    builder: GraphBuilder, x: Tensor, states: Sequence[Tensor], directions: Sequence[Direction],
    lengths: Tensor | None = None,
) -> tuple[list[Tensor], list[Tensor]]:  # fmt: skip
    """Return the outputs of each direction [length, batch, hidden], and the last states [directions, batch, hidden].

    `x` is [length, batch, size]. Beyond its length, of `lengths` [batch, 1], a sequence keeps its states and gives 0.
    """
    sequences: list[Tensor] = []
    finals: list[list[Tensor]] = [[] for _ in states]
    for at, direction in enumerate(directions):
        begin = [state[at] for state in states]
        rows = [x.type.with_shape((x.shape[0], *begin[0].shape))]
        step = _step(direction, direction.projected(x), lengths)
        *last, output = scan(builder, step, begin, rows, x.shape[0], backwards=direction.is_backwards)
        sequences.append(output)
        for collected, state in zip(finals, last, strict=True):
            collected.append(state)
    return sequences, [stack(each, 0) for each in finals]


def _step(direction: Direction, projected: Tensor, lengths: Tensor | None) -> Step:
    def step(at: Tensor | int, states: Sequence[Tensor]) -> list[Tensor]:
        formula = checked(direction.cell.step, expected_tensors(len(states)), "the step of a cell", OpError)
        hidden, *others = formula(direction, row_at(projected, at), states)
        if direction.projection is not None:
            hidden = times_transposed(hidden, direction.projection)
        if lengths is None:
            return [hidden, *others, hidden]
        position = number(lengths.builder, at, lengths.dtype) if isinstance(at, int) else at.cast(lengths.dtype)
        valid = position < lengths
        kept = [where(valid, new, old) for new, old in zip((hidden, *others), states, strict=True)]
        return [*kept, where(valid, hidden, 0)]

    return step
