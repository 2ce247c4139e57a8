"""Optimizers: a training step from given gradients."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.registry import converter

DOMAIN = "ai.onnx.preview.training"


@converter("Adagrad", domain=DOMAIN)
def adagrad(node: Node) -> list[ir.Value]:
    rate, step = _rate_and_step(node)
    decay, epsilon = node.attr.float("decay_factor", 0.0), node.attr.float("epsilon", 1e-6)
    norm = node.attr.float("norm_coefficient", 0.0)
    one = node.constant(1, type_of(rate))
    slowed = node.emit("divide", rate, node.emit("add", one, _times(node, step, decay)))
    weights, squares = [], []
    for x, gradient, square in _groups(node, 3):
        gradient = _regularized(node, x, gradient, norm)
        square = node.emit("add", square, node.emit("multiply", gradient, gradient))
        root = _plus(node, node.emit("sqrt", square), epsilon)
        change = node.emit("divide", node.emit("multiply", slowed, gradient), root)
        weights.append(node.emit("subtract", x, change))
        squares.append(square)
    return [*weights, *squares]


@converter("Momentum", domain=DOMAIN)
def momentum(node: Node) -> list[ir.Value]:
    rate, step = _rate_and_step(node)
    alpha, beta, norm = (node.attr.float(name) for name in ("alpha", "beta", "norm_coefficient"))
    is_nesterov = node.attr.choice("mode", None, ("standard", "nesterov")) == "nesterov"
    one, zero = (node.constant(number, type_of(rate)) for number in (1, 0))
    share = node.emit("where", node.emit("greater", step, zero), node.constant(beta, type_of(rate)), one)
    weights, velocities = [], []
    for x, gradient, velocity in _groups(node, 3):
        gradient = _regularized(node, x, gradient, norm)
        velocity = node.emit("add", _times(node, velocity, alpha), node.emit("multiply", share, gradient))
        change = node.emit("add", gradient, _times(node, velocity, alpha)) if is_nesterov else velocity
        weights.append(node.emit("subtract", x, node.emit("multiply", rate, change)))
        velocities.append(velocity)
    return [*weights, *velocities]


@converter("Adam", domain=DOMAIN)
def adam(node: Node) -> list[ir.Value]:
    rate, step = _rate_and_step(node)
    alpha, beta = node.attr.float("alpha", 0.9), node.attr.float("beta", 0.999)
    norm, norm_after = (node.attr.float(f"norm_coefficient{suffix}", 0.0) for suffix in ("", "_post"))
    epsilon, kind = node.attr.float("epsilon", 1e-6), type_of(rate)
    one, zero = (node.constant(number, kind) for number in (1, 0))
    grown = [
        node.emit("subtract", one, node.emit("power", node.constant(number, kind), step)) for number in (alpha, beta)
    ]
    corrected = node.emit("divide", node.emit("multiply", rate, node.emit("sqrt", grown[1])), grown[0])
    rate = node.emit("where", node.emit("greater", step, zero), corrected, rate)
    weights, means, squares = [], [], []
    for x, gradient, mean, square in _groups(node, 4):
        gradient = _regularized(node, x, gradient, norm)
        mean = node.emit("add", _times(node, mean, alpha), _times(node, gradient, 1 - alpha))
        squared = node.emit("multiply", gradient, gradient)
        square = node.emit("add", _times(node, square, beta), _times(node, squared, 1 - beta))
        root = _plus(node, node.emit("sqrt", square), epsilon)
        change = node.emit("divide", node.emit("multiply", rate, mean), root)
        weights.append(_times(node, node.emit("subtract", x, change), 1 - norm_after))
        means.append(mean)
        squares.append(square)
    return [*weights, *means, *squares]


def _rate_and_step(node: Node) -> tuple[ir.Value, ir.Value]:
    """Return the learning rate, and the step number in its type."""
    for i, name in enumerate("RT"):
        if node.type(i).elements != 1:
            raise NodeError(f"input '{name}' must have one element, got {node.type(i)}")
    rate, step = (node.emit("reshape", node[i], shape=()) if node.type(i).rank else node[i] for i in range(2))
    return rate, node.emit("cast", step, dtype=type_of(rate).dtype)


def _groups(node: Node, count: int) -> list[tuple[ir.Value, ...]]:
    """Return the inputs after the first two, by tensor: all weights come first, then all gradients, and so on."""
    values = node.all(2)
    if len(values) % count:
        raise NodeError(f"expected {count} inputs for each tensor after R and T, got {len(values)} in all")
    tensors = len(values) // count
    return [tuple(values[i::tensors]) for i in range(tensors)]


def _regularized(node: Node, x: ir.Value, gradient: ir.Value, norm: float) -> ir.Value:
    return node.emit("add", _times(node, x, norm), gradient) if norm else gradient


def _times(node: Node, value: ir.Value, number: float) -> ir.Value:
    return node.emit("multiply", value, node.constant(number, type_of(value)))


def _plus(node: Node, value: ir.Value, number: float) -> ir.Value:
    return node.emit("add", value, node.constant(number, type_of(value)))
