"""`mirlo serve`: a server for models."""

from __future__ import annotations

import sys

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.options import given_options


def execute(arguments: Arguments) -> None:
    """Run the command until a signal ends it."""
    from mirlo.serve.options import ServeOptions, parse_models
    from mirlo.serve.run import run_server

    options = ServeOptions(**given_options(arguments, ServeOptions))
    sources = parse_models(arguments.models)
    names = ", ".join(source.name for source in sources)
    print(f"mirlo: loading {names}", file=sys.stderr, flush=True)

    def announce(address: str) -> None:
        print(f"mirlo: serving {names} at {address}", file=sys.stderr, flush=True)

    run_server(sources, options, arguments.options, announce)
