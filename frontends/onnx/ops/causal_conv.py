"""CausalConvWithState with a symbolic number of channels; ONNX's function body is used for a static one."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.relax.infer import require_equal_dims, require_rank
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import DECLINED, Converted
from mirlo.frontends.tensor import concat


@converter("CausalConvWithState")
def causal_conv(node: Node) -> Converted:
    """Convolve each channel with its own window, preceded by the state; return the last elements as the new state."""
    x, weight = node.type(0), node.type(1)
    require_rank(x, 3, "input 'input'")
    require_rank(weight, 3, "input 'weight'")
    batch, channels, length = x.shape
    if isinstance(channels, int) or isinstance(weight.shape[0], int):
        return DECLINED  # a grouped convolution
    window = weight.shape[2]
    require_equal_dims(channels, weight.shape[0], f"the channels of {x} and {weight}")
    require_equal_dims(weight.shape[1], 1, f"dim 1 of input 'weight' {weight} and the channels of a group")
    activation = node.attr.choice("activation", "none", ("none", "silu", "swish"))
    kept = D.maximum(window - 1, 0)
    before = node.optional(3)
    if before is None:
        before = node.emit("full", shape=(batch, channels, kept), value=0, dtype=x.dtype)
    require_equal_dims(before.type.shape[2], kept, f"the last dim of 'past_state' and a window of {window}")
    padded = concat((before, node[0]), axis=2)

    wide = "f64" if x.dtype.name == "f64" else "f32"
    rows = node.index_vector(length).reshape((length, 1))
    columns = node.index_vector(window).reshape((1, window))
    taken = padded.gather(rows + columns, 2)
    factors = node[1].cast(wide)
    result = (taken.cast(wide) * factors).sum(3)
    if node.has(2):
        bias = node[2].cast(wide).reshape((channels, 1))
        result = result + bias
    if activation != "none":
        result = result * result.sigmoid()
    last = padded.slice(2, length, kept)
    return result.cast(x.dtype), last
