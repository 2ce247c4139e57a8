"""Targets: one folder each, found through the entry point group `mirlo.targets`."""
