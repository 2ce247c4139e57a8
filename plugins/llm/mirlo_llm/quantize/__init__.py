"""Quantization of language models in folders to integers of a few bits."""
