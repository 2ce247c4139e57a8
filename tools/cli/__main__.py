"""`python -m mirlo.tools.cli` is the command `mirlo`."""

from __future__ import annotations

from mirlo.tools.cli import command

command()
