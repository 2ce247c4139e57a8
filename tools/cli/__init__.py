"""The `mirlo` command: compiles, runs and inspects models."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from mirlo.runtime.interpreter import FewerCollections, with_frame_space
from mirlo.runtime.names import terminal_streams
from mirlo.runtime.processes import leave, silence
from mirlo.tools.cli.arguments import Arguments, make_parser
from mirlo.tools.cli.errors import code_of, explain

COMMANDS = {
    "compile": "mirlo.tools.cli.compile",
    "run": "mirlo.tools.cli.run",
    "link": "mirlo.tools.cli.library",
    "info": "mirlo.tools.cli.info",
    "check": "mirlo.tools.cli.check",
    "verify": "mirlo.tools.cli.verifying",
    "bisect": "mirlo.tools.cli.bisecting",
    "fuzz": "mirlo.tools.cli.fuzzing",
    "tune": "mirlo.tools.cli.tuning",
    "partition": "mirlo.tools.cli.partitioning",
    "import": "mirlo.tools.cli.importing",
    "quantize": "mirlo.tools.cli.quantizing",
    "targets": "mirlo.tools.cli.targets",
    "explain": "mirlo.tools.cli.explaining",
    "explorer": "mirlo.tools.cli.exploring",
    "bench": "mirlo.tools.cli.bench",
    "cache": "mirlo.tools.cli.cache",
    "check-target": "mirlo.tools.cli.checking",
    "remote": "mirlo.tools.cli.remote",
    "new": "mirlo.tools.cli.new_package",
    "doctor": "mirlo.tools.cli.doctor",
    "completion": "mirlo.tools.cli.completion",
}
"""The module of each command, with its `execute`; imported when the command runs."""

RESULTS = ("compile", "run", "link", "info", "check", "explain", "partition", "bench", "doctor")
"""Commands with `--json` and `--quiet`, whose results have one form."""
RESULT_FORMAT = "mirlo-result/1"
"""What the first field of a result says, of the schema `docs/result.schema.json`."""
INTERRUPTED = 130


@FewerCollections()
@with_frame_space
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code: 0, 1 after an error, 130 when interrupted."""
    with terminal_streams():
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else argv
    debug, arguments = False, Arguments()
    try:
        parser = make_parser(words)
        if not words:
            parser.print_help()
            sys.stdout.flush()
            return 0
        try:
            arguments = parser.parse_args(argv, namespace=arguments)
        finally:
            sys.stdout.flush()  # argparse does not say that its texts could not be written
        debug = arguments.debug
        _execute(arguments, parser)
        if arguments.command in RESULTS and arguments.json:
            _print_result(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe; Python must not report that again at exit.
        silence(sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("mirlo: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if debug:
            raise
        text, code = explain(error), code_of(error)
        if getattr(arguments, "command", None) in RESULTS and arguments.json:
            _print_result(arguments, {"code": code, "message": text})
        print(f"mirlo: error[{code}]: {text}", file=sys.stderr)
        return 1
    return 0


def _print_result(arguments: Arguments, error: dict[str, str] | None = None) -> None:
    """Print the result of a command as JSON: common fields, then those of the command."""
    import json  # 4 ms, which other commands save

    common = {"format": RESULT_FORMAT, "command": arguments.command, "ok": error is None, "error": error}
    try:
        print(json.dumps({**common, **arguments.result}, indent=2, default=str))
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout.fileno())


def _execute(arguments: Arguments, parser: argparse.ArgumentParser) -> None:
    if "sample" in arguments:
        from mirlo.tools.cli.files import check_model

        check_model(arguments, parser.error)
    if arguments.plugin:
        from mirlo.tools.cli.files import load_plugins

        load_plugins(arguments.plugin)
    if "sample" in arguments and arguments.sample is not None:
        from mirlo.tools.cli.files import use_sample

        use_sample(arguments)
    if "execute" in arguments:
        arguments.execute(arguments)
    else:
        importlib.import_module(COMMANDS[arguments.command]).execute(arguments)


def command() -> NoReturn:
    """Run `mirlo` and end the process."""
    # Commands need no threads of NumPy's matrix library, and these would spin at their start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    leave(main())
