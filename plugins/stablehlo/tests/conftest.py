"""The modules that the tests of this package share are imported by plain name."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "support")]
