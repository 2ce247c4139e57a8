"""Lets the tests of this package import what they share, of modules of tests too."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("support", "generate")]
