"""Single elementwise steps of the library: one primitive on values in the layouts that they have."""

from __future__ import annotations

from mirlo.targets.onednn.native import api
from mirlo.targets.onednn.native.builder import Builder, attributes, primitive_desc
from mirlo.targets.onednn.native.storage import Value


def eltwise_step(builder: Builder, x: Value, algorithm: str, alpha: float, beta: float, result: Value) -> Value:
    """One function of each element."""
    attr = attributes()
    descriptor = primitive_desc(
        "eltwise_forward", api.engine(), api.FORWARD_INFERENCE, api.ELTWISE[algorithm],
        x.desc.pointer, result.desc.pointer, alpha, beta, attr.pointer,
    )  # fmt: skip
    builder.emit(descriptor, {api.SRC: x, api.DST: result})
    return result


def binary_step(builder: Builder, algorithm: str, x: Value, y: Value, result: Value) -> Value:
    """One function of two elements."""
    y = builder.in_layout(y, x.desc) if y.desc.shape == x.desc.shape else y
    descriptor = describe_binary(algorithm, x, y, attributes())
    builder.emit(descriptor, {api.SRC: x, api.SRC_1: y, api.DST: result})
    return result


def describe_binary(algorithm: str, x: Value, y: Value, attr: api.Owned) -> api.Owned:
    """Return the descriptor of a binary primitive."""
    return primitive_desc(
        "binary", api.engine(), api.BINARY[algorithm], x.desc.pointer, y.desc.pointer, x.desc.pointer, attr.pointer
    )
