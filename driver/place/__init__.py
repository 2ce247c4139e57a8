"""Placement by cost: which part of a model goes to which target."""
