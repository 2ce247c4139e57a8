"""Patterns of convolutions with an addition and relu that the library computes in one call."""

from __future__ import annotations

import math

from mirlo.extend.codegen import Decline, Match, MatchCheck, Pattern, conv_bias_activation, decline, is_op, wildcard
from mirlo_cudnn.plan import DTYPES


def patterns() -> list[tuple[str, Pattern, MatchCheck]]:
    """Return the patterns, the longest first."""

    def added() -> Pattern:
        result: Pattern = is_op("relax.add")(conv_bias_activation(activation=False), wildcard().named("added"))
        return result

    return [
        ("conv_added_relu", is_op("relax.relu")(added()).named("activation"), check),
        ("conv_added", added(), check),
        ("conv_relu", conv_bias_activation(activation="relax.relu"), check),
        ("conv", conv_bias_activation(activation=False), check),
    ]


def check(match: Match) -> bool | Decline:
    """Decline a match that the library does not compute."""
    node = match.nodes[0]
    x, weight, result = match["x"].type, match["weight"].type, node.type
    if x is None or weight is None or result is None or not (x.is_static and result.is_static):
        return decline("the library needs static sizes")
    if x.rank not in (4, 5):
        return decline("the library convolves images and volumes", rank=x.rank)
    if x.dtype.name not in DTYPES or {x.dtype, weight.dtype, result.dtype} != {x.dtype}:
        return decline("the library convolves floats of one type", x=x.dtype.name, result=result.dtype.name)
    padding = tuple(node.attribute("padding"))
    half = len(padding) // 2
    if padding[:half] != padding[half:]:
        return decline("the library needs equal padding at both ends", padding=padding)
    if "added" in match:
        added = match["added"].type
        if match["added"].is_constant or added is None or (added.dtype, added.shape) != (result.dtype, result.shape):
            return decline("what is added is not a tensor of the result's type", added=str(added))
    if "bias" in match:
        bias = match["bias"].type
        axis = 1 if node.attribute("data_layout") == "NC*" else x.rank - 1
        channels = result.static_shape[axis]
        is_own = node.operand("bias") is not None
        if bias is None or bias.dtype != result.dtype or math.prod(bias.static_shape) != channels:
            return decline("what is added is not a bias of the channels", bias=str(bias), channels=channels)
        if not is_own and bias.rank >= x.rank - axis and bias.static_shape[axis - x.rank] == channels:
            return True
        if not is_own:
            return decline("the added tensor is not a row of channels", bias=bias.shape)
    return True
