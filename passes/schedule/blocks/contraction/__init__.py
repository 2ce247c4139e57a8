"""Contractions: sums of products of two tensors, and their epilogues."""
