"""The command `mirlo`: commands of packages, and a function that runs it in this process.

    [project.entry-points."mirlo.commands"]
    name = "package.commands:COMMAND"

names a `PackageCommand`. `mirlo --help` lists it without importing the package.
"""

from mirlo.runtime.extenders import record_extenders
from mirlo.tools.cli import main
from mirlo.tools.cli.packages import PackageCommand

__all__ = [
    "PackageCommand",
    "main",
]

record_extenders(__name__)
