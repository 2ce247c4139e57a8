"""The target: convolutions in NVIDIA's library."""

from __future__ import annotations

from mirlo.passes.targets import Target

TARGET = Target(
    name="cudnn",
    help="convolutions in NVIDIA's cuDNN, with bias and relu: cudnn,nvvm",
    codegen="mirlo.targets.cudnn.codegen:CuDnn",
)
