"""Modules that tests of this package share are imported by their plain names."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]
