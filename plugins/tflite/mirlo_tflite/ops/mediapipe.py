"""Custom operators of MediaPipe's models."""

from __future__ import annotations

import numpy as np

from mirlo.extend.frontend import CHANNELS_LAST, Tensor, UnsupportedOperation
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.registry import converter

SAME, VALID = 1, 2
"""Paddings, as TensorFlow Lite numbers them."""


@converter("TFL.Convolution2DTransposeBias")
def transpose_with_bias(op: TosaOperation) -> Tensor:
    """Convert a transposed convolution with a bias; its attributes are those of `TfLiteTransposeConvParams`."""
    attributes = op.bytes("implementation_attrs")
    if len(op.operands) != 3 or len(attributes) < 12:
        raise UnsupportedOperation(
            f"has {len(op.operands)} operands and {len(attributes)} bytes of attributes, and takes 3 and 12 or more"
        )
    x, weight, bias = op.operands
    padding, width, height = np.frombuffer(attributes, "<i4", 3).tolist()
    if padding not in (SAME, VALID) or width < 1 or height < 1:
        raise UnsupportedOperation(f"has the padding {padding} and the strides {height} and {width}")
    # The sizes of windows less those of strides: what is cut off the result, or is missing at its end.
    windows = [size for size in weight.shape[1:3] if isinstance(size, int)]
    excess = [size - stride if padding == SAME else 0 for size, stride in zip(windows, (height, width), strict=True)]
    begin = [max(0, each) // 2 for each in excess]
    end = [max(0, each) - first for each, first in zip(excess, begin, strict=True)]
    result = op.emit(
        "conv_transpose", x, weight.permute((3, 0, 1, 2)), None, strides=[height, width], padding=[*begin, *end],
        data_layout=CHANNELS_LAST,
    )  # fmt: skip
    missing = [max(0, -each) for each in excess]
    if any(missing):
        result = op.emit("pad", result, pads=[0, 0, 0, 0, 0, *missing, 0])
    return result + bias
