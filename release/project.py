"""The facts of a release, from the files that state them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10
    tomllib = None  # type: ignore[assignment]

ROOT = Path(__file__).resolve().parents[1]
UNRELEASED = "Unreleased"


def read_project() -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    if tomllib is None:
        raise SystemExit("releases are made with Python 3.11 or newer, which reads TOML")
    with open(ROOT / "pyproject.toml", "rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    return project


def changelog_sections(text: str) -> dict[str, str]:
    """Return the sections of the changelog by version, the newest first."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {title.split(" ")[0]: body.strip() for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def read_changelog() -> dict[str, str]:
    """Return the sections of CHANGELOG.md."""
    return changelog_sections((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))


def recipe_value(text: str, name: str) -> str | None:
    """Return the value of a variable of the conda recipe."""
    match = re.search(rf'^\s*{name}: "?([^"\n]+?)"?\s*$', text, re.MULTILINE)
    return match[1] if match is not None else None
