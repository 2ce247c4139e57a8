"""Decoders by the code of transformers: PyTorch exports a model, and Mirlo compiles the program.

All modules but `sources` import PyTorch and transformers; they are imported only if neither `checkpoints` nor the cache
has the model.
"""
