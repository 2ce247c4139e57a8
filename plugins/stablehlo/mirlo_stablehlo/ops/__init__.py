"""Converters of StableHLO's operations to relax, one file per family."""
