"""`mirlo explain`: the rules of an operator, or the compilation of each node of a model, with reasons."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.dialects.context import load_installed_dialects
from mirlo.frontends.files import has_form
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.schedule.primitives.tree_passes import TREE_PASSES, tree_pass_summary
from mirlo.runtime.options import declared_options
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError, CompiledAlready
from mirlo.tools.cli.files import is_compiled, require_file
from mirlo.tools.cli.options import package_options
from mirlo.tools.error_codes import error_codes, lines_of
from mirlo.tools.explain.model import explain_model
from mirlo.tools.explain.report import as_json, only_kernel, only_node, text_lines
from mirlo.tools.explain.rules import chain_json, chain_lines, rule_chains
from mirlo.tools.folders import folder_form
from mirlo.tools.tables import columns

if TYPE_CHECKING:
    from mirlo.tools.explain.model import Explanation

LOOP_PASSES = "loop-passes"
"""The subject that lists the passes of `--after`."""


def execute(arguments: Arguments) -> None:
    """Explain a model if the subject is a file; else an error, the passes over loops, or rules."""
    subject = arguments.subject
    if Path(subject).suffix == ".onnx" or has_form(subject) or Path(subject).exists():
        _explain_model(arguments)
    elif arguments.subject.startswith("MIR") and arguments.subject[3:].isdigit():
        _explain_error(arguments)
    elif subject == LOOP_PASSES:
        _list_loop_passes(arguments)
    else:
        _explain_rules(arguments)


def _explain_error(arguments: Arguments) -> None:
    known = {entry.code: entry for entry in error_codes()}
    entry = known.get(arguments.subject)
    if entry is None:
        raise CommandError(f"no error has the code {arguments.subject}; docs/errors.md lists them")
    arguments.result = {"subject": entry.code, "error_code": asdict(entry)}
    arguments.show(*lines_of(entry)[:-1])


def _require_no_model_options(arguments: Arguments) -> None:
    of_models = (
        arguments.node, arguments.kernel, arguments.after, arguments.shape, arguments.dim, arguments.save_trace
    )  # fmt: skip
    of_compilations = {"precision", "tune", *declared_options(package_options())}
    if any(of_models) or of_compilations & set(arguments.options):
        raise CommandError(
            "--node, --kernel, --after, --save-trace, --precision, --database, --no-tuning, --shape, --dim and options "
            "of packages are for models"
        )


def _list_loop_passes(arguments: Arguments) -> None:
    _require_no_model_options(arguments)
    summaries = {name: tree_pass_summary(name) for name in TREE_PASSES}
    passes = [{"name": name, "summary": summary} for name, summary in summaries.items()]
    arguments.result = {"subject": arguments.subject, "loop_passes": passes}
    arguments.show("passes over the loops of a schedule, in this order", *columns(list(summaries.items())))


def _explain_rules(arguments: Arguments) -> None:
    _require_no_model_options(arguments)

    load_installed_dialects()  # a package that does not load is named before what it lacks
    targets = Targets.parse(arguments.target or "llvm")
    chains = [chain for name in targets.names for chain in rule_chains(arguments.subject, name)]
    arguments.result = {"subject": arguments.subject, "chains": [chain_json(chain) for chain in chains]}
    arguments.show(*(line for chain in chains for line in chain_lines(chain)))


def _explain_model(arguments: Arguments) -> None:
    is_folder = Path(arguments.subject).is_dir()
    if not is_folder:
        require_file(arguments.subject)
    if arguments.save_trace and not arguments.kernel:
        raise CommandError("--save-trace writes the schedule of one kernel: name it with --kernel")
    if arguments.after and not arguments.kernel:
        raise CommandError("--after prints the loops of one kernel: name it with --kernel")
    if not is_folder and is_compiled(arguments.subject):
        raise CompiledAlready(f"{arguments.subject} is compiled already: explain the model that it was compiled from")
    options = arguments.options
    explanation = explain_model(
        folder_form(arguments.subject).open(arguments.subject) if is_folder else arguments.subject,
        arguments.target or "llvm",
        threads=arguments.threads or 1,
        shapes=arguments.shapes,
        strategies=options.get("strategies"),
        schedules=options.get("schedules"),
        tune=options.get("tune", True),
        kernel=arguments.kernel,
        after=arguments.after,
        precision=options.get("precision"),
        **{name: options[name] for name in declared_options(package_options()) if name in options},
    )
    shown = only_node(explanation, arguments.node) if arguments.node else explanation
    shown = only_kernel(shown, arguments.kernel) if arguments.kernel else shown
    if arguments.save_trace:
        _save_trace(shown, arguments.kernel, arguments.save_trace)
    arguments.result = {"subject": arguments.subject, **as_json(shown)}
    arguments.show(*text_lines(shown))
    if explanation.failure is not None:
        sys.stdout.flush()
        raise CommandError(explanation.failure)


def _save_trace(explanation: Explanation, kernel: str | None, file: str) -> None:
    """Write the schedule of the one kernel of an explanation as a trace."""
    scheduled = explanation.kernels[0].schedule if explanation.kernels else None
    if scheduled is None:
        raise CommandError(f"no schedule rule made kernel '{kernel}': an earlier pass scheduled it, so it has no trace")
    try:
        scheduled.trace.save(file)
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror or error}") from None
