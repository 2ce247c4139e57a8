"""Optimizers: a training step from given gradients."""

from __future__ import annotations

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.tensor import Tensor, where

DOMAIN = "ai.onnx.preview.training"


@converter("Adagrad", domain=DOMAIN)
def adagrad(node: Node) -> list[Tensor]:
    rate, step = _rate_and_step(node)
    decay, epsilon = node.attr.float("decay_factor", 0.0), node.attr.float("epsilon", 1e-6)
    norm = node.attr.float("norm_coefficient", 0.0)
    slowed = rate / (1 + step * decay)
    weights, squares = [], []
    for x, gradient, square in _groups(node, 3):
        gradient = _regularized(node, x, gradient, norm)
        square = square + gradient * gradient
        root = square.sqrt() + epsilon
        change = slowed * gradient / root
        weights.append(x - change)
        squares.append(square)
    return [*weights, *squares]


@converter("Momentum", domain=DOMAIN)
def momentum(node: Node) -> list[Tensor]:
    rate, step = _rate_and_step(node)
    alpha, beta, norm = (node.attr.float(name) for name in ("alpha", "beta", "norm_coefficient"))
    is_nesterov = node.attr.choice("mode", None, ("standard", "nesterov")) == "nesterov"
    kind = rate.type
    share = where(step > 0, node.constant(beta, kind), node.constant(1, kind))
    weights, velocities = [], []
    for x, gradient, velocity in _groups(node, 3):
        gradient = _regularized(node, x, gradient, norm)
        velocity = velocity * alpha + share * gradient
        change = gradient + velocity * alpha if is_nesterov else velocity
        weights.append(x - rate * change)
        velocities.append(velocity)
    return [*weights, *velocities]


@converter("Adam", domain=DOMAIN)
def adam(node: Node) -> list[Tensor]:
    rate, step = _rate_and_step(node)
    alpha, beta = node.attr.float("alpha", 0.9), node.attr.float("beta", 0.999)
    norm, norm_after = (node.attr.float(f"norm_coefficient{suffix}", 0.0) for suffix in ("", "_post"))
    epsilon, kind = node.attr.float("epsilon", 1e-6), rate.type
    grown = [1 - (node.constant(number, kind) ** step) for number in (alpha, beta)]
    corrected = rate * grown[1].sqrt() / grown[0]
    rate = where(step > 0, corrected, rate)
    weights, means, squares = [], [], []
    for x, gradient, mean, square in _groups(node, 4):
        gradient = _regularized(node, x, gradient, norm)
        mean = mean * alpha + gradient * (1 - alpha)
        squared = gradient * gradient
        square = square * beta + squared * (1 - beta)
        root = square.sqrt() + epsilon
        change = rate * mean / root
        weights.append((x - change) * (1 - norm_after))
        means.append(mean)
        squares.append(square)
    return [*weights, *means, *squares]


def _rate_and_step(node: Node) -> tuple[Tensor, Tensor]:
    """Return the learning rate, and the step number in its type."""
    for i, name in enumerate("RT"):
        if node.type(i).elements != 1:
            raise NodeError(f"input '{name}' must have one element, got {node.type(i)}")
    rate, step = (node[i].reshape(()) if node.type(i).rank else node[i] for i in range(2))
    return rate, step.cast(rate.type.dtype)


def _groups(node: Node, count: int) -> list[tuple[Tensor, ...]]:
    """Return the inputs after the first two, by tensor: all weights come first, then all gradients, and so on."""
    values = node.all(2)
    if len(values) % count:
        raise NodeError(f"expected {count} inputs for each tensor after R and T, got {len(values)} in all")
    tensors = len(values) // count
    return [tuple(values[i::tensors]) for i in range(tensors)]


def _regularized(node: Node, x: Tensor, gradient: Tensor, norm: float) -> Tensor:
    return x * norm + gradient if norm else gradient
