"""Schedules of target `gpu`: prim functions as launches of threads."""
