"""The command `mirlo`: commands of packages, and a function that runs it in this process.

    [project.entry-points."mirlo.commands"]
    name = "package.commands:COMMAND"

names a `PackageCommand`. `mirlo --help` lists it without importing the package.
"""

from mirlo.runtime.extenders import record_extenders
from mirlo.tools.cli import main
from mirlo.tools.cli.arguments import Arguments, PackageCommand, make_parser
from mirlo.tools.cli.options import add_options, add_package_options, given_options
from mirlo.tools.cli.progress import Progress
from mirlo.tools.cli.values import AddCommand, positive
from mirlo.tools.folders import FolderForm, FolderQuantization, QuantizedFolder

__all__ = [
    "AddCommand",
    "Arguments",
    "FolderForm",
    "FolderQuantization",
    "PackageCommand",
    "Progress",
    "QuantizedFolder",
    "add_options",
    "add_package_options",
    "given_options",
    "main",
    "make_parser",
    "positive",
]

record_extenders(__name__)
