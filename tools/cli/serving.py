"""`mirlo serve`: a server for models."""

from __future__ import annotations

import sys

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.serve_arguments import NUMBER_NAMES


def execute(arguments: Arguments) -> None:
    """Run the command until a signal ends it."""
    from mirlo.serve.options import ServeOptions, parse_models, read_keys
    from mirlo.serve.run import run_server

    given = {name: getattr(arguments, name) for name in (*NUMBER_NAMES, "memory")}
    options = ServeOptions(
        host=arguments.host,
        keys=read_keys(arguments.api_keys) if arguments.api_keys else (),
        is_open=arguments.without_keys,
        **{name: value for name, value in given.items() if value is not None},
    )
    sources = parse_models(arguments.models)
    names = ", ".join(source.name for source in sources)
    print(f"mirlo: loading {names}", file=sys.stderr, flush=True)

    def announce(address: str) -> None:
        print(f"mirlo: serving {names} at {address}", file=sys.stderr, flush=True)

    run_server(sources, options, arguments.options, announce)
