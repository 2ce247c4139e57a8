"""Commands of Mirlo in processes of their own, for tests.

done = run_command("compile", "model.onnx", "--target", "npu", cwd=tmp_path)
assert "wrote" in output_of(done)

Where there is `fork`, `run_command`, `run_script` and `shell_commands` run in forks of a process that has imported the
compiler, which takes half a second of each command otherwise; `run_python` starts a new process.
"""

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

from mirlo.testing import tool_client, tool_process
from mirlo.testing.unoptimized import UNOPTIMIZED

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
"""The environment of a process that imports the same packages as this one, whatever is installed."""

OF_A_TEST = ("PYTEST_CURRENT_TEST", UNOPTIMIZED)
"""Variables that are set while a test runs."""

COMMANDS = {
    "mirlo": "mirlo.tools.cli:command",
    "mirlo-opt": "mirlo.tools.opt:command",
    "python": "mirlo.testing.tool_server:run_script",
}
"""Commands, and the functions that run them."""

Folder = str | os.PathLike[str]


def run_command(
    *arguments: object, cwd: Folder | None = None, site: Sequence[Path] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `mirlo` with these arguments; return its exit code and what it wrote.

    The packages in the folders `site` are installed for it.
    """
    if not hasattr(os, "fork"):
        return run_python("-m", "mirlo.tools.cli", *arguments, cwd=cwd, site=site)
    return _forked(COMMANDS["mirlo"], arguments, cwd, site)


def run_script(
    *arguments: object, cwd: Folder | None = None, site: Sequence[Path] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a file of Python, `-c` and code, or `-m` and a module; what it imports may be imported already."""
    if not hasattr(os, "fork"):
        return run_python(*arguments, cwd=cwd, site=site)
    return _forked(COMMANDS["python"], arguments, cwd, site)


def run_python(
    *arguments: object, cwd: Folder | None = None, site: Sequence[Path] = ()
) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process, for tests of imports or of the process's end."""
    command = [sys.executable, *map(str, arguments)]
    environment = with_packages(site)
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)


def with_packages(site: Sequence[Path]) -> dict[str, str]:
    """Return the environment of a process for which the packages in these folders are installed."""
    path = os.pathsep.join([*map(str, site), ENVIRONMENT["PYTHONPATH"]])
    return {**ENVIRONMENT, "PYTHONPATH": path, **{name: os.environ[name] for name in OF_A_TEST if name in os.environ}}


def install(package: Path, site: Path) -> None:
    """Build the wheel of a package and unpack it into a folder, as `pip install --target` does in four processes."""
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    output_of(run_script("-c", build, site, cwd=package))
    for wheel in site.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(site)
        wheel.unlink()


def shell_commands(folder: Path, *names: str) -> dict[str, str]:
    """Write commands into a new folder `bin`; return the environment in which a shell finds them."""
    (folder / "bin").mkdir()
    for name in names:
        module = "" if name == "python" else f"-m {COMMANDS[name].partition(':')[0]}"
        line = f'"{sys.executable}" {module}'
        if hasattr(os, "fork"):
            line = f'"{sys.executable}" -I -S "{tool_client.__file__}" "{_server()}" {COMMANDS[name]}'
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    return {**with_packages(()), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the standard output of a command that must have succeeded."""
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_code(text: str) -> str:
    """Return what a command wrote to standard error, with `error: ` where it says `error[MIR0123]: `."""
    return re.sub(r"\berror\[MIR\d{4}\]: ", "error: ", text)


def _forked(
    function: str, arguments: Sequence[object], cwd: Folder | None, site: Sequence[Path]
) -> subprocess.CompletedProcess[str]:
    command = [*map(str, arguments)]
    folder = os.fspath(cwd) if cwd is not None else os.getcwd()
    with open(os.devnull) as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        files = [file.fileno() for file in (nothing, out, errors)]
        code = tool_client.run(_server(), function, command, folder, with_packages(site), files)
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode().replace("\r\n", "\n"))
    return subprocess.CompletedProcess([function, *command], code, *texts)


@cache
def _server() -> str:
    return tool_process.start(ENVIRONMENT)
