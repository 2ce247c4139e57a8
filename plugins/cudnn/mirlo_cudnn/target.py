"""The target: convolutions in NVIDIA's library."""

from __future__ import annotations

from mirlo.extend.target import Target

TARGET = Target(
    name="cudnn",
    help="convolutions, with bias and relu, and attention in NVIDIA's cuDNN: cudnn,nvvm",
    codegen="mirlo_cudnn.codegen:CuDnn",
)
