"""Converters, one file per family of operators."""
