"""Single elementwise steps: one primitive on values in their present layouts."""

from __future__ import annotations

from mirlo_onednn.native import api
from mirlo_onednn.native.builder import PrimitiveBuilder, attributes, primitive_desc
from mirlo_onednn.native.storage import PrimitiveValue


def eltwise_step(
    builder: PrimitiveBuilder, x: PrimitiveValue, algorithm: str, alpha: float, beta: float, result: PrimitiveValue
) -> PrimitiveValue:
    """Add a function of each element."""
    attr = attributes()
    descriptor = primitive_desc(
        "eltwise_forward", api.engine(), api.FORWARD_INFERENCE, api.ELTWISE[algorithm],
        x.desc.pointer, result.desc.pointer, alpha, beta, attr.pointer,
    )  # fmt: skip
    builder.emit(descriptor, {api.SRC: x, api.DST: result})
    return result


def binary_step(
    builder: PrimitiveBuilder, algorithm: str, x: PrimitiveValue, y: PrimitiveValue, result: PrimitiveValue
) -> PrimitiveValue:
    """Add a function of two elements."""
    y = builder.in_layout(y, x.desc) if y.desc.shape == x.desc.shape else y
    descriptor = describe_binary(algorithm, x, y, attributes())
    builder.emit(descriptor, {api.SRC: x, api.SRC_1: y, api.DST: result})
    return result


def describe_binary(algorithm: str, x: PrimitiveValue, y: PrimitiveValue, attr: api.Owned) -> api.Owned:
    """Return the descriptor of a binary primitive."""
    return primitive_desc(
        "binary", api.engine(), api.BINARY[algorithm], x.desc.pointer, y.desc.pointer, x.desc.pointer, attr.pointer
    )
