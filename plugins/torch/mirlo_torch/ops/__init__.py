"""Converters of ATen's operators to relax, one file per family."""
