"""Sample models that ship with Mirlo: exported graphs, whose weights come from a seed."""

from __future__ import annotations

from mirlo.tools.samples.seeded import GRAPHS, MARK, complete, file_in, fill_weights, names, path, write

__all__ = ["GRAPHS", "MARK", "complete", "file_in", "fill_weights", "names", "path", "write"]
