"""The target: matrix products in NVIDIA's library."""

from __future__ import annotations

from mirlo.passes.targets import Target

TARGET = Target(
    name="cublas",
    help="matrix products in NVIDIA's cuBLASLt, with what is added and activation: cublas,nvvm",
    codegen="mirlo.targets.cublas.codegen:CuBlas",
)
