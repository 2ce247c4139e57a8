"""Converters of TOSA's operations, one file per family."""
