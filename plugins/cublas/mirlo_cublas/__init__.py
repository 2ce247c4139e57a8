"""Target `cublas`: matrix products of a model computed by NVIDIA's cuBLASLt, next to target `nvvm`.

`target` holds the target for compilers; `native` runs what it made, and imports nothing of the compiler.
"""
