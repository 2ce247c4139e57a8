"""Decoders by the code of transformers: PyTorch exports a model, and Mirlo compiles the program.

Nothing here is imported where an architecture of `checkpoints` or the cache of compiled models suffices: all modules
but `sources` import PyTorch and transformers.
"""
