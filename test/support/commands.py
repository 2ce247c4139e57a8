"""Running Mirlo's commands in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import tool_client
import tool_process
from unoptimized import UNOPTIMIZED

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / ".cache" / "models"
"""Where tests keep the filled models of `benchmarks/models`."""

# A child imports the same package as this process, whatever is installed.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

OF_A_TEST = ("PYTEST_CURRENT_TEST", UNOPTIMIZED)
"""Variables that are set while a test runs."""


def python(*arguments: object, cwd: Path = ROOT, site: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process, for tests of imports or of the process's end."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=with_packages(site))


def with_packages(site: Sequence[Path]) -> dict[str, str]:
    """Return the environment of a process for which the packages in these folders are installed."""
    path = os.pathsep.join([*map(str, site), ENVIRONMENT["PYTHONPATH"]])
    return {**ENVIRONMENT, "PYTHONPATH": path, **{name: os.environ[name] for name in OF_A_TEST if name in os.environ}}


def mirlo(*arguments: object, cwd: Path = ROOT, site: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command `mirlo`, if there is `fork` in a process that has imported it already."""
    if not hasattr(os, "fork"):
        return python("-m", "mirlo.tools.cli", *arguments, cwd=cwd, site=site)
    return _forked(COMMANDS["mirlo"], arguments, cwd, site)


def run_script(*arguments: object, cwd: Path = ROOT, site: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """Run a file of Python, `-c` and code, or `-m` and a module; what it imports may be imported already.

    The packages in the folders `site` are installed for it.
    """
    if not hasattr(os, "fork"):
        return python(*arguments, cwd=cwd, site=site)
    return _forked(COMMANDS["python"], arguments, cwd, site)


def install(package: Path, site: Path) -> None:
    """Build the wheel of a package and unpack it into a folder, as `pip install --target` does in four processes."""
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    output_of(run_script("-c", build, site, cwd=package))
    for wheel in site.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(site)
        wheel.unlink()


COMMANDS = {
    "mirlo": "mirlo.tools.cli:command",
    "mirlo-opt": "mirlo.tools.opt:command",
    "python": "tool_server:run_script",
}
"""Commands, and the functions that run them."""


def shell_commands(folder: Path, *names: str) -> dict[str, str]:
    """Write commands into a new folder `bin`; return the environment in which a shell finds them.

    They run as `mirlo` and `run_script` do, in forks of a process that has imported the compiler.
    """
    (folder / "bin").mkdir()
    for name in names:
        module = "" if name == "python" else f"-m {COMMANDS[name].partition(':')[0]}"
        line = f'"{sys.executable}" {module}'
        if hasattr(os, "fork"):
            line = f'"{sys.executable}" -I -S "{tool_client.__file__}" "{_server()}" {COMMANDS[name]}'
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    return {**with_packages(()), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def _forked(
    function: str, arguments: Sequence[object], cwd: Path, site: Sequence[Path] = ()
) -> subprocess.CompletedProcess[str]:
    command = [*map(str, arguments)]
    with open(os.devnull) as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        files = [file.fileno() for file in (nothing, out, errors)]
        environment = with_packages(site)
        code = tool_client.run(_server(), function, command, str(cwd), environment, files)
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode().replace("\r\n", "\n"))
    return subprocess.CompletedProcess([function, *command], code, *texts)


@cache
def _server() -> str:
    return tool_process.start(ENVIRONMENT)


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the standard output of a command that must have succeeded."""
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def benchmark_model(name: str) -> Path:
    """Return a model of `benchmarks/models` with its weights."""
    return Path(output_of(run_script("-m", "benchmarks.models", name, "--cache", MODELS)).strip())


def require_tests(path: Path, whole: bool = False) -> None:
    """Run the tests of a file in a process of their own, in which they may register what others must not see.

    With `whole` they run whole, not a sample of them.
    """
    done = run_script("-m", "pytest", "-q", "-p", "no:cacheprovider", *(["--whole"] if whole else []), path)
    assert done.returncode == 0, done.stdout + done.stderr


def without_code(text: str) -> str:
    """Return what a command wrote to standard error, with `error: ` where it says `error[MIR0123]: `."""
    return re.sub(r"\berror\[MIR\d{4}\]: ", "error: ", text)
