"""Changes of a float model before it is quantized: normalizations join weights, channels are equalized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mirlo.frontends.onnx.graph import NodeDef
from mirlo.frontends.onnx.order import read_names
from mirlo.tools.quantize.network import Network, attributes_of, without
from mirlo.tools.quantize.operators import Role, role_of

MAX_FACTOR = 64.0
"""Most that a channel is scaled by: weights of channels that hardly occur are noise."""


def fold(network: Network) -> None:
    """Remove nodes that compute nothing, and those that can be merged into weights and biases."""
    _remove_identities(network)
    _unscale_products(network)
    _fold_normalizations(network)


def _remove_identities(network: Network) -> None:
    outputs, renamed, kept = set(network.outputs), dict[str, str](), []
    captured = {name for node in network.nodes if node.graphs for name in read_names(node)}
    for node in network.nodes:
        is_identity = not node.domain and (
            node.operator == "Identity" or (node.operator == "Dropout" and len(node.inputs) < 3)
        )
        others = [name for name in node.outputs[1:] if name]
        if is_identity and not others and node.outputs[0] not in outputs | captured:
            renamed[node.outputs[0]] = renamed.get(node.inputs[0], node.inputs[0])
        else:
            kept.append(replace(node, inputs=tuple(renamed.get(name, name) for name in node.inputs)))
    network.nodes = kept


def _unscale_products(network: Network) -> None:
    """Multiply the weights of Gemm by its alpha, and the bias by its beta; expand the bias to one element a column."""
    for at, node in enumerate(network.nodes):
        if (node.domain, node.operator) != ("", "Gemm"):
            continue
        attributes = attributes_of(node)
        alpha, beta = (np.float32(attributes.get(name, 1.0)) for name in ("alpha", "beta"))  # type: ignore[arg-type]
        weight = network.weight(node.inputs[1])
        has_bias = len(node.inputs) > 2 and bool(node.inputs[2])
        bias = network.weight(node.inputs[2]) if has_bias else None
        if weight is None or weight.ndim != 2 or (has_bias and bias is None):
            continue
        columns = weight.shape[0 if attributes.get("transB", 0) else 1]
        inputs = [node.inputs[0], node.inputs[1]]
        if alpha != 1:
            inputs[1] = network.add(weight * alpha, f"{node.inputs[1]}_scaled")
        if bias is not None:
            if bias.size not in (1, columns) or (bias.ndim == 2 and bias.shape[1] not in (1, columns)):
                continue  # rows of the result have biases of their own
            if bias.ndim == 2 and bias.shape[1] == 1 < columns and bias.size > 1:
                continue
            whole = np.broadcast_to(np.float32(bias.reshape(-1) * beta), (columns,))
            inputs.append(network.add(np.ascontiguousarray(whole), f"{node.inputs[2]}_scaled"))
        network.nodes[at] = replace(node, inputs=tuple(inputs), attributes=without(node.attributes, "alpha", "beta"))


def _fold_normalizations(network: Network) -> None:
    """Fold each BatchNormalization into the product before it, which nothing else reads."""
    readers = network.readers()
    producers = {name: node for node in network.nodes for name in node.outputs}
    replaced: dict[int, NodeDef | None] = {}
    places = {id(node): at for at, node in enumerate(network.nodes)}
    for node in network.nodes:
        if (node.domain, node.operator) != ("", "BatchNormalization") or len([n for n in node.outputs if n]) > 1:
            continue
        before = producers.get(node.inputs[0])
        if before is None or readers[node.inputs[0]] != 1 or attributes_of(node).get("training_mode", 0):
            continue
        folded = _folded(network, before, node)
        if folded is not None:
            replaced[places[id(before)]], replaced[places[id(node)]] = folded, None
    network.nodes = [new for at, node in enumerate(network.nodes) if (new := replaced.get(at, node)) is not None]


def _folded(network: Network, product: NodeDef, norm: NodeDef) -> NodeDef | None:
    """Return the product with a normalization of its channels in weights and bias."""
    axis = weight_axis(product)
    if product.operator not in ("Conv", "Gemm") or axis is None or len(product.inputs) < 2:
        return None
    weight = network.weight(product.inputs[1])
    parameters = [network.weight(name) for name in norm.inputs[1:5]]
    has_bias = len(product.inputs) > 2 and bool(product.inputs[2])
    bias = network.weight(product.inputs[2]) if has_bias else np.zeros(1, np.float32)
    if weight is None or bias is None or any(each is None for each in parameters):
        return None
    gamma, beta, mean, variance = (each.astype(np.float64) for each in parameters if each is not None)
    epsilon = float(attributes_of(norm).get("epsilon", 1e-5))  # type: ignore[arg-type]
    channels = weight.shape[axis]
    if gamma.shape != (channels,) or (bias.size != 1 and bias.size != channels) or (variance + epsilon <= 0).any():
        return None
    factor = gamma / np.sqrt(variance + epsilon)
    folded_bias = (bias.reshape(-1).astype(np.float64) - mean) * factor + beta
    inputs = (
        product.inputs[0],
        network.add(np.float32(weight * along(factor, axis, weight.ndim)), f"{product.inputs[1]}_folded"),
        network.add(folded_bias.astype(np.float32), f"{norm.inputs[2]}_folded"),
    )
    return replace(product, inputs=inputs, outputs=norm.outputs)


def weight_axis(node: NodeDef) -> int | None:
    """Return the axis of a product's weights along which its result has channels; None where they are mixed."""
    attributes = attributes_of(node)
    if node.operator == "Conv":
        return 0
    if node.operator == "ConvTranspose":
        return 1 if attributes.get("group", 1) == 1 else None
    if node.operator == "Gemm":
        return 0 if attributes.get("transB", 0) else 1
    return 1


def along(vector: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """Return a vector in a shape that broadcasts along an axis."""
    return vector.reshape([-1 if i == axis else 1 for i in range(rank)])


def equalize(network: Network, largest: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Make the channels between two products equally large; return the divisors of the values of tensors.

    The channels of a product's weights and data meet halfway: with the largest magnitude `a` of the data and `w` of
    the weights that read them, both are `sqrt(a * w)` afterwards. Activations that keep positive factors stand between.
    """
    readers = network.readers()
    users: dict[str, NodeDef] = {name: node for node in network.nodes for name in read_names(node)}
    places = {id(node): at for at, node in enumerate(network.nodes)}
    divided: dict[str, np.ndarray] = {}
    for at in range(len(network.nodes)):
        first = network.nodes[at]
        if first.operator not in ("Conv", "Gemm") or first.domain or network.weight(first.inputs[1]) is None:
            continue
        between, name = [first.outputs[0]], first.outputs[0]
        while readers[name] == 1 and name in users:
            role = role_of(users[name].operator, users[name].domain)
            if role is None or not role.homogeneous:
                break
            name = users[name].outputs[0]
            between.append(name)
        if readers[name] != 1 or name not in users or name not in largest:
            continue
        second = network.nodes[places[id(users[name])]] if id(users[name]) in places else users[name]
        scaled = _equalized(network, first, second, name, largest[name])
        if scaled is None:
            continue
        factors, new_first, new_second = scaled
        for old, new in ((first, new_first), (second, new_second)):
            place = next(i for i, node in enumerate(network.nodes) if node is old)
            network.nodes[place] = new
            places[id(new)] = place
            for read in read_names(new):
                users[read] = new
        divided |= dict.fromkeys(between, factors)
    return divided


def _equalized(
    network: Network, first: NodeDef, second: NodeDef, name: str, largest: np.ndarray
) -> tuple[np.ndarray, NodeDef, NodeDef] | None:
    """Return the factors of the channels, and both products with scaled weights."""
    role = role_of(second.operator, second.domain)
    if role is None or role.role is not Role.PRODUCT or second.inputs[0] != name or len(second.inputs) < 2:
        return None
    weight, axis = network.weight(first.inputs[1]), weight_axis(first)
    other = network.weight(second.inputs[1])
    attributes = attributes_of(second)
    has_bias = len(first.inputs) > 2 and bool(first.inputs[2])
    bias = network.weight(first.inputs[2]) if has_bias else np.zeros(1, np.float32)
    if weight is None or axis is None or other is None or bias is None or attributes.get("transA", 0):
        return None
    channels = weight.shape[axis]
    if second.operator == "Conv":
        depthwise = attributes.get("group", 1) != 1
        if depthwise and not (other.shape[0] == channels == attributes["group"]):
            return None
        read_axis = 0 if depthwise else 1
    elif second.operator in ("Gemm", "MatMul"):
        read_axis = 1 - (weight_axis(second) or 0)
    else:
        return None
    repeats = other.shape[read_axis] // channels
    if other.ndim < 2 or repeats * channels != other.shape[read_axis] or bias.size not in (1, channels):
        return None
    data = largest.reshape(channels, -1).max(1) if largest.size == repeats * channels else largest
    if data.size != channels:
        return None
    rows = np.abs(np.moveaxis(other, read_axis, 0)).reshape(channels, -1).max(1)
    factors = np.where((data > 0) & (rows > 0), np.sqrt(np.where(data > 0, data, 1) / np.where(rows > 0, rows, 1)), 1.0)
    middle = np.exp(np.mean(np.log(factors)))
    factors = np.clip(factors / middle, 1 / MAX_FACTOR, MAX_FACTOR).astype(np.float32)
    inputs = [first.inputs[0], network.add(weight / along(factors, axis, weight.ndim), f"{first.inputs[1]}_equalized")]
    if has_bias:
        inputs.append(network.add(bias.reshape(-1) / factors, f"{first.inputs[2]}_equalized"))
    spread = along(np.repeat(factors, repeats), read_axis, other.ndim)
    others = list(second.inputs)
    others[1] = network.add(other * spread, f"{second.inputs[1]}_equalized")
    return factors, replace(first, inputs=tuple(inputs)), replace(second, inputs=tuple(others))
