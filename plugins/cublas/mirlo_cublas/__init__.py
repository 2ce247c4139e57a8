"""Target `cublas`: matrix products of a model computed by NVIDIA's cuBLASLt, next to target `nvvm`.

`target` has the target for compilers; `native` runs its artifacts and imports nothing of the compiler.
"""
