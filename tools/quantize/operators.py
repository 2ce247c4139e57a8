"""The quantization of ONNX's operators."""

from __future__ import annotations

from enum import Enum

from mirlo.runtime.records import dataclass


class Role(Enum):
    """The role of an operator in an int8 model."""

    PRODUCT = "product"
    """Multiplies int8 data by int8 weights, or two int8 tensors, and sums up in i32."""
    COMPUTES = "computes"
    """Reads int8 data and returns int8 data of another range."""
    MOVES = "moves"
    """Returns elements of its first input, which keep their scale."""


@dataclass(frozen=True)
class OperatorRole:
    """The role and other properties of an operator."""

    role: Role
    always: bool = True
    """Whether it is quantized wherever its data are; else only where the whole model is."""
    activation: bool = False
    """Whether it joins the operator before it, so that nothing is rounded between them."""
    homogeneous: bool = False
    """Whether a positive factor of a channel of its data is one of that channel of its result."""


_MOVES = OperatorRole(Role.MOVES)
_ON_REQUEST = OperatorRole(Role.COMPUTES, always=False)

ROLES: dict[str, OperatorRole] = {
    "Conv": OperatorRole(Role.PRODUCT),
    "ConvTranspose": OperatorRole(Role.PRODUCT),
    "Gemm": OperatorRole(Role.PRODUCT),
    "MatMul": OperatorRole(Role.PRODUCT),
    "Add": OperatorRole(Role.COMPUTES),
    "Concat": OperatorRole(Role.COMPUTES),
    "AveragePool": OperatorRole(Role.COMPUTES, homogeneous=True),
    "GlobalAveragePool": OperatorRole(Role.COMPUTES, homogeneous=True),
    "Relu": OperatorRole(Role.COMPUTES, activation=True, homogeneous=True),
    "Clip": OperatorRole(Role.COMPUTES, activation=True),
    "MaxPool": OperatorRole(Role.MOVES, homogeneous=True),
    "Flatten": OperatorRole(Role.MOVES, homogeneous=True),
    "LeakyRelu": OperatorRole(Role.COMPUTES, always=False, homogeneous=True),
} | dict.fromkeys(
    ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "Expand", "Tile", "DepthToSpace", "SpaceToDepth",
     "Gather"), _MOVES
) | dict.fromkeys(
    ("Sub", "Mul", "ReduceMean", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Gelu", "Softmax", "Resize"),
    _ON_REQUEST,
)  # fmt: skip
"""The operators of the default domain that can be int8; all others stay in f32."""


def role_of(operator: str, domain: str) -> OperatorRole | None:
    """Return the role of an operator; None if it is not quantized."""
    return ROLES.get(operator) if not domain else None
