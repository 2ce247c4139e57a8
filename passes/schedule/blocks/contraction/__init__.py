"""Contractions: sums of products of two tensors, and the elementwise blocks on them."""
