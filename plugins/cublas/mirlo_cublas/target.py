"""The target: matrix products in NVIDIA's library."""

from __future__ import annotations

from mirlo.extend.target import Target

TARGET = Target(
    name="cublas",
    help="matrix products in NVIDIA's cuBLASLt, with what is added and activation: cublas,nvvm",
    codegen="mirlo_cublas.codegen:CuBlas",
)
