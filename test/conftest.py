"""Tests import the checkout that they are in, whatever is installed."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

if ROOT.name == "mirlo":
    sys.path.insert(0, str(ROOT.parent))
