"""The command `mirlo-lsp`: starts the language server."""

from __future__ import annotations

import sys
from collections.abc import Sequence

HELP = """usage: mirlo-lsp [--version]

The language server for IR of Mirlo (.mlir) and for scripts in Python. Editors start it, and talk to it over its
standard input and output.
"""
MISSING = "mirlo-lsp: error: the language server needs pygls: pip install mirlo-editor"


def command(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if "--help" in arguments or "-h" in arguments:
        sys.stdout.write(HELP)
        return 0
    if "--version" in arguments:
        from importlib.metadata import version

        print(f"mirlo-lsp {version('mirlo')}")
        return 0
    unknown = [argument for argument in arguments if argument != "--stdio"]  # what some clients add
    if unknown:
        print(f"mirlo-lsp: error: unknown argument '{unknown[0]}'\n{HELP}", file=sys.stderr)
        return 2
    try:
        import pygls  # noqa: F401
    except ImportError:
        print(MISSING, file=sys.stderr)
        return 1
    from mirlo_editor.server import make_server

    make_server().start_io()
    return 0


if __name__ == "__main__":
    sys.exit(command())
