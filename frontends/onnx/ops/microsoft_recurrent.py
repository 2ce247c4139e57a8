"""`com.microsoft`: recurrent layers with quantized weights."""

from __future__ import annotations

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.microsoft_quantized import DOMAIN, dynamically_quantized
from mirlo.frontends.onnx.ops.recurrent import QuantizedWeights, lstm_layer
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor


@converter("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_quantize_lstm(node: Node) -> Converted:
    """Convert DynamicQuantizeLSTM.

    The inputs are those of LSTM, with W and R transposed and quantized, then scale and zero point of W and of R.
    """

    def pick(index: int, at: int) -> Tensor:
        """Scale and zero point are one value for each direction, or one for each of its columns."""
        directions, _, columns = node.type(index).shape
        scale, zero = (6 + 2 * index, 7 + 2 * index)
        for parameter in (scale, zero):
            if node.type(parameter).shape not in ((directions,), (directions, columns)):
                raise NodeError(
                    f"input '{node.input_name(parameter)}' must be [{directions}] or [{directions}, {columns}], "
                    f"got {node.type(parameter)}"
                )
        values = [node[i][at] for i in (index, scale, zero)]
        return node.emit("dequantize", *values, axis=1, dtype=node.type(scale).dtype)

    for i in (1, 2):
        if node.type(i).rank != 3:
            raise NodeError(f"input '{'XWR'[i]}' must have 3 dims, got {node.type(i)}")
    return lstm_layer(node, QuantizedWeights(lambda x: dynamically_quantized(node, x), pick))
