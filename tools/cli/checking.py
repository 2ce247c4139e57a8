"""`mirlo check-target`: the results of a target compared with numpy, operator by operator."""

from __future__ import annotations

import json
import sys

from mirlo.passes.byoc.target_list import Targets
from mirlo.runtime.errors import nearest
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError
from mirlo.tools.cli.progress import Progress
from mirlo.tools.cli.remote import board_options
from mirlo.tools.conformance.check import FAILED, WRONG, check_target, names, schedule_names
from mirlo.tools.conformance.instructions import instructions_of
from mirlo.tools.conformance.matrix import as_json, markdown, text_lines
from mirlo.tools.conformance.patterns import operator_patterns
from mirlo.tools.remote import on_board


def execute(arguments: Arguments) -> None:
    """Check the target and print the matrix; wrong results and failures are an error."""
    if (arguments.target is None) == (arguments.given is None):
        raise CommandError("which target? mirlo check-target TARGET, or --target TARGET")
    listed = Targets.parse(arguments.target or arguments.given or "")
    target = str(listed.or_host())
    wanted = _operator_names(arguments.operator, target)
    has_host = listed.host is not None or wanted is not None
    with Progress(f"checking {target}", arguments.verbose) as progress, on_board(board_options(arguments)):
        matrix = check_target(target, wanted, progress, host=has_host)
    if arguments.json:
        print(json.dumps(as_json(matrix), indent=2))
    elif arguments.markdown:
        print(markdown(matrix), end="")
    else:
        print("\n".join(text_lines(matrix)))
    wrong = matrix.count(WRONG) + matrix.count(FAILED)
    if wrong:
        sys.stdout.flush()
        raise CommandError(f"target '{target}' fails {wrong} checks")
    if matrix.unreached:
        sys.stdout.flush()
        first, reason = matrix.unreached[0]
        what = f"{len(matrix.unreached)} rules of target '{target}', such as '{first.name}': {reason}"
        raise CommandError(f"no case took {what}; nothing is known of them")
    if matrix.untaken:
        sys.stdout.flush()
        raise CommandError(f"no case took {len(matrix.untaken)} patterns of '{target}': nothing is known of them")


def _operator_names(words: list[str], target: str) -> list[str] | None:
    """Return the full names given by `--operator`: of operators, and what the target has of its own."""
    instructions = [each.name for each in instructions_of(target)]
    known = [*names(), *operator_patterns(target), *schedule_names(target), *instructions]
    full_names = []
    for name in words:
        full = [name] if name in known else [f"{space}.{name}" for space in ("relax", "tir")]
        if not set(full) & set(known):
            raise CommandError(f"there is nothing to check called '{name}'{nearest(name, known)}")
        full_names += [name for name in full if name in known]
    return full_names or None
