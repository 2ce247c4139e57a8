"""Schedules of target `llvm`, one rule for each kind of prim function."""
