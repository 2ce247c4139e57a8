"""`mirlo new`: a small package to start from."""

from __future__ import annotations

from pathlib import Path

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.new import write_package


def execute(arguments: Arguments) -> None:
    """Write the package and print its files, and how to run its tests."""
    written = write_package(arguments.kind, arguments.package, Path(arguments.into))
    for path in written:
        print(path)
    print(f"run its tests: cd {written[0].parent} && pytest && lit tests")
