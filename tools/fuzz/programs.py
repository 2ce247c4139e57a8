"""Random graphs in programs in C, for machines of 64 and of 32 bits, in memory between pages that cannot be touched.

The graphs and calls are those of `guards`. A graph becomes C source, which is compiled with Mirlo's run time in C for
each machine; the program computes each call four times, as `guards` does (`run_guarded.c`). The machines must agree:
one of 32 bits may refuse a call whose tensors it has no room for, and nothing else.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirlo.driver.code import SOURCE as FORM
from mirlo.driver.code import compile_code
from mirlo.driver.request import CompileRequest
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import write_regular
from mirlo.runtime.records import dataclass
from mirlo.runtime.tensor_bytes import read_tensors, tensor_bytes
from mirlo.targets.c.compiler import find_compiler
from mirlo.targets.c.library import write_source
from mirlo.tools.fuzz.guards import Feeds, guarded_case, write
from mirlo.tools.fuzz.verdict import FAILED, REFUSED, SeedVerdict, verdict_of_error

if TYPE_CHECKING:
    import onnx

    from mirlo.runtime.params import ParameterStore

__all__ = ["STATES", "judge", "require_host", "write"]

SAFE = "safe"
STATES = {
    SAFE: "computed or refused by both machines, the same; nothing outside of memory was touched",
    REFUSED: "an error says that something is not supported",
    FAILED: "an access outside of memory, results that depend on what was in memory, or that machines differ in: a bug",
}
SOURCE = Path(__file__).with_name("run_guarded.c")
NAME = "model"
FLAGS = ("-std=gnu99", "-O0", "-w", "-ffp-contract=off", f"-DMODEL=mirlo_model_{NAME}")
WIDE, NARROW = (), ("-m32", "-msse2", "-mfpmath=sse", "-idirafter", "/usr/include/x86_64-linux-gnu")
"""Flags for the machine of this process, and for one of 32 bits with the same arithmetic of floats.

Both have the same headers of the kernel. Debian's gcc-multilib has links to them, but conflicts with cross compilers.
"""
OK, SIZES, NO_MEMORY = 0, 2, 3
"""Statuses of `mirlo.h`."""
SECONDS = 60
"""Most seconds for the calls of a program."""


class ProgramFault(Exception):
    """The problem that a program found with its model, or how it ended."""


@dataclass(frozen=True)
class CallResult:
    """The status of a call, and its outputs by name; none where the status is not 0."""

    status: int
    outputs: Mapping[str, np.ndarray]


def require_host() -> None:
    """Raise an error where programs for a machine of 32 bits cannot be compiled or run here."""
    with tempfile.TemporaryDirectory(prefix="mirlo-fuzz-") as name:
        source, program = Path(name) / "probe.c", Path(name) / "probe"
        write_regular(source, "#include <sys/stat.h>\nint main(void) { return (int)sizeof(void *) - 4; }\n")
        compiler = find_compiler()
        for command in ([compiler, *FLAGS, *NARROW, str(source), "-o", str(program)], [str(program)]):
            if subprocess.run(command, capture_output=True, check=False).returncode:
                raise MirloError(
                    f"'{compiler} {NARROW[0]}' makes no program that runs here: 'programs' needs an x86-64 machine and "
                    "a compiler with the libraries of 32 bits: Debian's packages libc6-dev-i386 and lib32gcc-12-dev"
                )


def judge(seed: int) -> SeedVerdict:
    """Compile the graph of a seed for both machines and run its calls in guarded memory."""
    case = guarded_case(seed)
    used = tuple(case.graph.operators)
    refusal = SeedVerdict(REFUSED, "no nodes", used)
    for model in case.models if case.graph.operators else ():
        try:
            artifact, store = _compiled(model)
        except Exception as error:
            verdict = verdict_of_error(error)
            refusal = SeedVerdict(verdict.state, verdict.text, used)
            if verdict.state == FAILED:
                return refusal
            continue
        calls = case.calls([value.name for value in model.graph.input])
        exact = {name for name, epsilon in case.graph.epsilons.items() if not epsilon}
        problem = judge_calls(artifact, store, calls, exact)
        return SeedVerdict(FAILED if problem else SAFE, problem or "", used)
    return refusal


def judge_calls(artifact: Artifact, store: ParameterStore, calls: Sequence[Feeds], exact: set[str]) -> str | None:
    """Run calls of a model on both machines; return the problem, or None.

    `exact` are the outputs that every machine computes alike.
    """
    with tempfile.TemporaryDirectory(prefix="mirlo-fuzz-") as name:
        folder = Path(name)
        write_regular(folder / "calls", _content(artifact, calls))
        results = []
        for bits, flags in ((64, WIDE), (32, NARROW)):
            try:
                content = _run(artifact, store, folder / str(bits), flags)
            except ProgramFault as fault:
                return f"{bits} bits: {fault}"
            results.append(list(_results(artifact, content, len(calls))))
    for number, (wide, narrow) in enumerate(zip(*results, strict=True)):
        difference = _difference(wide, narrow, exact)
        if difference is not None:
            return f"call {number}: {difference}"
    return None


def _compiled(model: onnx.ModelProto) -> tuple[Artifact, ParameterStore]:
    return compile_code(CompileRequest(model, "c", form=FORM, jobs=1, cache=False))


def _run(artifact: Artifact, store: ParameterStore, folder: Path, flags: Sequence[str]) -> bytes:
    """Make the program of a model and run it; return what it writes. `folder` is beside the file of calls."""
    folder.mkdir()
    write_source(artifact, store, folder, NAME, weights="embed")
    files = [SOURCE, folder / f"{NAME}.c", folder / "mirlo.c"]
    program, written = folder / "program", folder / "results"
    built = [find_compiler(), *FLAGS, *flags, f"-I{folder}", *map(str, files), "-o", str(program), "-lm"]
    _execute([*built, "-ldl", "-lpthread"])
    _execute([str(program), str(folder.parent / "calls"), str(written)])
    return written.read_bytes()


def _execute(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise ProgramFault(f"'{Path(command[0]).name}' did not end in {SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise ProgramFault(lines[-1] if lines else f"'{Path(command[0]).name}' ended with code {done.returncode}")


def _content(artifact: Artifact, calls: Sequence[Feeds]) -> bytes:
    """Return the file of calls: how many, then dims and data of each input."""
    contents = (tensor_bytes(feeds[spec.name] for spec in artifact.inputs) for feeds in calls)
    return b"".join([np.int32(len(calls)).tobytes(), *contents])


def _results(artifact: Artifact, content: bytes, calls: int) -> Iterator[CallResult]:
    """Yield the result of each call, from the file that a program wrote."""
    at = 0
    for _ in range(calls):
        status = int(np.frombuffer(content, np.int32, 1, at)[0])
        at += 4
        outputs, at = read_tensors(artifact.outputs, content, at) if status == OK else ({}, at)
        yield CallResult(status, outputs)


def _difference(wide: CallResult, narrow: CallResult, exact: set[str]) -> str | None:
    """Return the difference of the machines; None if they agree, or the narrow one lacks room for the results."""
    if narrow.status in (SIZES, NO_MEMORY) and wide.status in (OK, NO_MEMORY):
        return None
    if narrow.status != wide.status:
        return f"status {wide.status} with 64 bits, {narrow.status} with 32"
    for name, array in wide.outputs.items():
        other = narrow.outputs[name]
        if array.shape != other.shape:
            return f"'{name}' has shape {list(array.shape)} with 64 bits, {list(other.shape)} with 32"
        if name in exact and array.tobytes() != other.tobytes():
            return f"'{name}' has other elements with 32 bits"
    return None
