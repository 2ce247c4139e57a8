"""The five models that Mirlo is measured on: graphs in this folder, weights from a seed."""

from .seeded import fill, names, path

__all__ = ["fill", "names", "path"]
