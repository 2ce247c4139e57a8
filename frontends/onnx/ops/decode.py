"""Decoding of image files, by a host function."""

from __future__ import annotations

import re

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.runtime.kinds import Kind


@converter("ImageDecoder", since=20)
def image_decoder(node: Node) -> Converted:
    """Convert ImageDecoder; the image size is declared or data-dependent."""
    pixel_format = node.attr.choice("pixel_format", "RGB", ("RGB", "BGR", "Grayscale"))
    if node.type(0).rank != 1:
        raise NodeError(f"input 'encoded_stream' must be a row of bytes, got {node.type(0)}")
    name = re.sub(r"\W", "_", node.outputs[0])
    channels = 1 if pixel_format == "Grayscale" else 3
    shape = node.declared(0) or (f"height_of_{name}", f"width_of_{name}", channels)
    return node.host("mirlo.image.decode", node[0], results=[Kind("u8", shape)], pixel_format=pixel_format)
