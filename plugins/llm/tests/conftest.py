"""Puts the folders with shared modules of these tests on the import path."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("support", "generate")]
