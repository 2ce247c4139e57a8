"""Target `cudnn`: convolutions and attention of a model computed by NVIDIA's cuDNN, beside target `nvvm`.

`target` holds the target for compilers; `native` runs what it made, and imports nothing of the compiler.
"""
