"""Code generation in a separate process, so that its crashes leave the compiler running.

The process reads a bundle (`bundle.py`) and writes the artifact to a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.byoc.codegen import DeclinedRegions, generator_of
from mirlo.passes.byoc.generator_errors import Crash, artifact_problem, as_artifact, describe_error
from mirlo.passes.rules import Decline
from mirlo.passes.targets import plugin_of
from mirlo.runtime.external import ExternalArtifact
from mirlo.runtime.files import write_regular
from mirlo.runtime.fresh_process import fresh_command
from mirlo.runtime.processes import signal_name

if TYPE_CHECKING:
    from mirlo.passes.byoc.bundle import Bundle

LAST_LINES = 5
"""Lines of the process's standard error shown in errors."""


def codegen_in_process(bundle: Bundle, target: str, options: str) -> ExternalArtifact | DeclinedRegions:
    """Return the artifact that a target's code generator makes of a bundle in a process; `Crash` if it ends."""
    with tempfile.TemporaryDirectory(prefix="mirlo-codegen-") as folder:
        plugin = plugin_of(target)
        arguments = (str(bundle.path), folder, target, options)
        done = subprocess.run(
            fresh_command("mirlo.passes.byoc.isolate", *arguments, plugins=[plugin] if plugin else []),
            capture_output=True, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        problem = Path(folder) / "problem"
        if problem.exists():
            raise Crash(problem.read_text(encoding="utf-8"))
        if done.returncode != 0:
            raise Crash(_how_it_ended(done))
        return _read(Path(folder))


def _how_it_ended(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()[-LAST_LINES:]
    last = f"; it wrote last: {' | '.join(lines)}" if lines else ""
    if done.returncode < 0:
        return f"crashed (signal {signal_name(-done.returncode)}){last}"
    return f"ended its process with code {done.returncode}{last}"


def _write(output: object, folder: Path) -> None:
    """Write an artifact as files, or the description of any other object."""
    if isinstance(output, DeclinedRegions):
        reasons = {name: reason.reason for name, reason in output.reasons.items()}
        write_regular(folder / "declined", json.dumps(reasons))
        return
    if not isinstance(output, ExternalArtifact):
        write_regular(folder / "problem", f"gave a {type(output).__name__}: expected NativeCode or an Artifact")
        return
    header = {"format": output.format, "functions": list(output.functions), "params": list(output.params)}
    write_regular(folder / "data", output.data)
    write_regular(folder / "header", json.dumps({**header, "metadata": dict(output.metadata)}))


def _read(folder: Path) -> ExternalArtifact | DeclinedRegions:
    declined = folder / "declined"
    if declined.exists():
        reasons = json.loads(declined.read_text(encoding="utf-8"))
        return DeclinedRegions({name: Decline(reason) for name, reason in reasons.items()})
    header = json.loads((folder / "header").read_text(encoding="utf-8"))
    return ExternalArtifact(
        format=header["format"], functions=tuple(header["functions"]), data=(folder / "data").read_bytes(),
        params=tuple(header["params"]), metadata=header["metadata"],
    )  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Run the process on a bundle, an output folder, a target and its options."""
    from mirlo.dialects.context import make_context
    from mirlo.passes.byoc.read_external import external_modules, read_external
    from mirlo.passes.files import open_params
    from mirlo.passes.session import Session

    bundle, folder, target, options = arguments
    with make_context(), ir.Location.unknown():
        session = Session()
        module = ir.Module.parseFile(bundle)
        open_params(module, os.path.dirname(bundle), session)
        (nested,) = external_modules(module)
        view = read_external(nested, session)
        generator = generator_of(target, options)
        try:
            artifact = as_artifact(generator.codegen(view), view)
            problem = artifact_problem(artifact, view)
        except Exception as error:
            problem = describe_error(error)
        if problem is not None:
            write_regular(Path(folder) / "problem", problem)
            return
        _write(artifact, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
