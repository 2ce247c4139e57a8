"""Search for NVIDIA's libraries in wheels and in the system's library path."""

from __future__ import annotations

import ctypes.util
import sys
from functools import cache
from pathlib import Path


@cache
def find_library(name: str) -> str | None:
    """Return the path or name of `lib<name>`, or None: the newest of a wheel, else the system's."""
    folders = [folder for entry in sys.path for folder in sorted(Path(entry or ".").glob("nvidia/*/lib"))]
    files = [str(file) for folder in folders for file in sorted(folder.glob(f"lib{name}.so*"))]
    return files[-1] if files else ctypes.util.find_library(name)
