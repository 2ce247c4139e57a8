"""Tuning: what a target lets choose for a kernel, tried and timed; the best is kept in a database."""
