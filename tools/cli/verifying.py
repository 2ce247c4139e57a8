"""`mirlo verify`: each kernel of a model compared with its definition, exactly."""

from __future__ import annotations

import json
import sys

from mirlo.passes.exact.compare_graphs import first_wrong
from mirlo.passes.exact.verdict import DIFFERENT
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError, CompiledAlready
from mirlo.tools.cli.files import is_compiled, require_file
from mirlo.tools.verify.graph import graph_as_json, graph_lines, verify_graph
from mirlo.tools.verify.model import verify_model
from mirlo.tools.verify.report import as_json, text_lines


def execute(arguments: Arguments) -> None:
    """Compare the kernels and print a table; a kernel that differs is an error."""
    require_file(arguments.model)
    if is_compiled(arguments.model):
        raise CompiledAlready(f"{arguments.model} is compiled already: verify the model that it was made from")
    if arguments.graph:
        _verify_graph(arguments)
        return
    options = arguments.options
    verification = verify_model(
        arguments.model,
        arguments.target or "llvm",
        processor=arguments.processor,
        threads=arguments.threads or 1,
        shapes=arguments.shapes,
        strategies=options.get("strategies"),
        schedules=options.get("schedules"),
        tune=options.get("tune", True),
        kernel=arguments.kernel,
        precision=options.get("precision"),
        rounds=arguments.rounds,
        casts=arguments.casts,
        sizes=";".join(arguments.sizes),
        cache=options.get("cache", True),
    )
    if arguments.json:
        print(json.dumps(as_json(verification), indent=2))
    else:
        print("\n".join(text_lines(verification)))
    different = verification.count(DIFFERENT)
    if different:
        sys.stdout.flush()
        kernels = "kernel differs" if different == 1 else "kernels differ"
        raise CommandError(f"{arguments.model}: {different} {kernels} from the definition")


def _verify_graph(arguments: Arguments) -> None:
    """Compare passes and rules and print tables; one that changes results is an error."""
    options = arguments.options
    verification = verify_graph(
        arguments.model,
        arguments.target or "llvm",
        processor=arguments.processor,
        threads=arguments.threads or 1,
        shapes=arguments.shapes,
        strategies=options.get("strategies"),
        precision=options.get("precision"),
        sizes=";".join(arguments.sizes),
    )
    if arguments.json:
        print(json.dumps(graph_as_json(verification), indent=2))
    else:
        print("\n".join(graph_lines(verification)))
    wrong = first_wrong(verification.verdicts)
    if wrong is not None:
        sys.stdout.flush()
        raise CommandError(f"{arguments.model}: {wrong}")
