"""Operators of `com.microsoft` for models with linear attention: gates, gated norms and convolutions with a state."""

from __future__ import annotations

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.infer import require_equal_dims, require_rank
from mirlo.frontends.library.normalizations import rms_norm
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.microsoft import scalar_input
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import DECLINED, Converted
from mirlo.frontends.tensor import Tensor, concat

DOMAIN = "com.microsoft"


@converter("ScaledSiLU", domain=DOMAIN)
def scaled_silu(node: Node) -> Tensor:
    """Convert z * sigmoid(z) of z = x times an input or the attribute alpha."""
    x = node.type(0)
    if node.has(1):
        node.attr.ignore("alpha")
        factor = scalar_input(node, 1).cast("f32")
    else:
        factor = node.constant(node.attr.float("alpha", 1.0), "f32")
    scaled = node[0].cast("f32") * factor
    return node.emit("silu", scaled.cast(x.dtype))


@converter("GatedAdd", domain=DOMAIN)
def gated_add(node: Node) -> Tensor:
    return node[0] + node[1] * node[2]


@converter("GatedRMSNorm", domain=DOMAIN)
def gated_rms_norm(node: Node) -> Tensor:
    """Convert; inputs: x [..., groups * width], scale [width], gate. Each group is normalized, in f32."""
    x, kind = node.type(0), node.attr.choice("activation", "silu", ("silu", "swish", "sigmoid"))
    rows, gate = (_groups(node, node[i], node.type(1).shape[0]) for i in (0, 2))
    normal = rms_norm(rows, node[1], -1, _epsilon(node))
    gated = normal * (gate.sigmoid() if kind == "sigmoid" else gate.elementwise("silu"))
    return gated.cast(x.dtype).reshape(x.shape)


def _epsilon(node: Node) -> float:
    return node.attr.float("epsilon", 1e-5)


def _groups(node: Node, value: Tensor, width: Dim) -> Tensor:
    """Return x [..., groups * width] as [..., groups, width], in f32."""
    *outer, last = value.type.shape
    if not isinstance(width, int) or not isinstance(last, int) or not width or last % width:
        raise NodeError(f"the last dim of {value.type} must be a multiple of {width}, the size of the scale")
    wide = value.cast("f32")
    return wide.reshape((*outer, last // width, width))


@converter("BranchwiseRMSNorm", domain=DOMAIN)
def branchwise_rms_norm(node: Node) -> Tensor:
    """Convert; inputs: x [..., branches, width] or, with `num_branches`, [..., branches * width], and a scale."""
    x, count = node.type(0), node.attr.int("num_branches", 0)
    width = x.shape[-1]
    if count:
        if count < 0 or not isinstance(width, int) or width % count:
            raise NodeError(f"attribute 'num_branches' is {count}: it does not divide the last dim of {x}")
        width //= count
    elif x.rank < 2:
        raise NodeError(f"branches and their width are expected, got {x}")
    rows = _groups(node, node[0], width)
    if not count:
        rows = rows.reshape(x.shape)
    normal = rms_norm(rows, None, -1, _epsilon(node))
    if node.has(1):
        scale = node[1].cast("f32")
        if node.type(1).elements != width:
            scale = scale.reshape(rows.type.shape[-2:])
        normal = normal * scale
    return normal.cast(x.dtype).reshape(x.shape)


@converter("LinearAttentionGate", domain=DOMAIN)
def linear_attention_gate(node: Node) -> Converted:
    """Convert; inputs: a, its bias and the scale of the decay by head, b. All is computed in f32."""
    biased = node[0].cast("f32") + node[1]
    decay = biased.softplus() * node[2]
    rate = None
    if node.has(3):
        wide = node[3].cast("f32").sigmoid()
        rate = wide.cast(node.type(3).dtype)
    elif node.has_output(1):
        raise NodeError("output 'beta' needs input 'b'")
    return decay.cast(node.type(0).dtype), rate


@converter("LinearAttention", domain=DOMAIN)
def linear_attention(node: Node) -> Converted:
    """Expand the function body of ONNX's operator."""
    _require(node, "state_window", 0, "the state after the last token only")
    return DECLINED


@converter("GatedDeltaNet", domain=DOMAIN)
def gated_delta_net(node: Node) -> Converted:
    """Expand the function body over LinearAttention, for sequences of one length."""
    _require(node, "state_update_capacity", 0, "no updates of states as output")
    for index, name in ((3, "cu_seqlens"), (9, "capture_count"), (10, "state_update_active")):
        if node.has(index):
            raise NodeError(f"input '{name}' is not supported: sequences must have one length, and updates stay inside")
    if node.has_output(2):
        raise NodeError("output 'state_update' is not supported")
    return DECLINED


@converter("CausalConvWithState", domain=DOMAIN)
def causal_conv(node: Node) -> Converted:
    """Convolve each channel, preceded by the state; the last elements are the new state.

    With `channels_last` x and the state are [batch, length, channels...].
    """
    _require(node, "ndim", 1, "one dim of positions")
    _require(node, "state_window", 0, "the state after the last position only")
    dilation, is_last = node.attr.int("dilation", 1), node.attr.bool("channels_last", 0)
    activation = node.attr.choice("activation", "none", ("none", "silu", "swish"))
    weight = node.type(1)
    require_rank(weight, 3, "input 'weight'")
    channels, _, window = weight.shape
    if not isinstance(channels, int) or not isinstance(window, int) or dilation < 1:
        raise NodeError(f"weights of a fixed size and a positive 'dilation' are expected, got {weight} and {dilation}")
    kept = (window - 1) * dilation
    x = _channels_first(node, node[0], channels) if is_last else node[0]
    require_rank(x.type, 3, "input 'input'")
    batch, input_channels, length = x.type.shape
    require_equal_dims(input_channels, channels, f"the channels of {node.type(0)} and {weight}")
    if node.has(3):
        before = _channels_first(node, node[3], channels) if is_last else node[3]
        require_equal_dims(before.type.shape[-1], kept, f"the length of 'past_state' and a window of {kept + 1}")
    else:
        before = node.emit("full", shape=(batch, channels, kept), value=0, dtype=node.type(0).dtype)
    padded = concat((before, x), axis=2)
    result = node.emit("conv", padded, node[1], node.optional(2), groups=channels, dilations=[dilation])
    if activation != "none":
        result = node.emit("silu", result)
    last = padded.slice(2, length, kept)
    if not is_last:
        return result, last
    outer = node.type(0).shape[2:]
    return tuple(_channels_last(node, each, outer) for each in (result, last))


def _require(node: Node, name: str, value: int, meaning: str) -> None:
    actual = node.attr.int(name, value)
    if actual != value:
        raise NodeError(f"attribute '{name}' must be {value}, {meaning}, got {actual}")


def _channels_first(node: Node, value: Tensor, channels: int) -> Tensor:
    """Return [batch, channels, length] of [batch, length, channels...]."""
    batch, length, *_ = value.type.shape
    return value.reshape((batch, length, channels)).permute((0, 2, 1))


def _channels_last(node: Node, value: Tensor, outer: tuple[Dim, ...]) -> Tensor:
    batch, _, length = value.type.shape
    return value.permute((0, 2, 1)).reshape((batch, length, *outer))
