"""The models that Mirlo is measured on: exported graphs here, with weights from a seed, and some that are built."""

from .seeded import all_names, fill, names, path

__all__ = ["all_names", "fill", "names", "path"]
