"""Operators composed of others that several front ends have, each one function over tensors."""
