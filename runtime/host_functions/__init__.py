"""Mirlo's host functions: one file per family of names, `mirlo.sequence.*` in `sequence.py`."""
