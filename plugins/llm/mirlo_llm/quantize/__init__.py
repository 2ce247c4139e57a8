"""Weights of language models in folders, as integers of a few bits."""
