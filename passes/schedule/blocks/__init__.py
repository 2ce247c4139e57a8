"""Analyses of blocks that the schedules of all targets share: iteration spaces, reductions, row operations."""
