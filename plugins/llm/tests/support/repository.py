"""The folder of the repository, for its pages and examples."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
