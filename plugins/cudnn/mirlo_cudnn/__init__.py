"""Target `cudnn`: convolutions and attention computed by NVIDIA's cuDNN, next to target `nvvm`.

`target` holds the target for compilers; `native` runs its artifacts, and imports nothing of the compiler.
"""
