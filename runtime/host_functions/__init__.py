"""Host functions of Mirlo's own: one file per family of names, `mirlo.sequence.*` in `sequence.py`."""
