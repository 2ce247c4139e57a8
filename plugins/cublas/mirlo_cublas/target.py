"""The target: matrix products in NVIDIA's library."""

from __future__ import annotations

from mirlo.extend.target import Target

TARGET = Target(
    name="cublas",
    help="matrix products in NVIDIA's cuBLASLt, with bias and activation: cublas,nvvm",
    codegen="mirlo_cublas.codegen:CuBlas",
)
