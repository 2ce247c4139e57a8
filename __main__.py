"""`python -m mirlo` is the command `mirlo`."""

from __future__ import annotations

from mirlo.tools.cli import command

command()
