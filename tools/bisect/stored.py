"""Values of a model in files: a bisection keeps all of them, and reads few at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.tools.bisect.compare import ModelValue

LEAST_BYTES = 1 << 20
"""Bytes of the smallest arrays that are written to files."""


@dataclass
class ValueFolder:
    """A folder with an array in each file."""

    folder: Path
    count: int = 0

    def stored(self, value: ModelValue) -> ModelValue:
        """Return a value whose large array is mapped from a file, which takes no memory until it is read."""
        if not isinstance(value, np.ndarray) or value.nbytes < LEAST_BYTES or value.dtype.hasobject:
            return value
        self.count += 1
        path = self.folder / f"{self.count}.raw"
        written = np.memmap(path, value.dtype, "w+", shape=value.shape)
        written[...] = value
        written.flush()
        return np.asarray(np.memmap(path, value.dtype, "r", shape=value.shape))
