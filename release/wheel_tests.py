"""Run the tests of packages beside installed wheels: `python -m release.wheel_tests NAME... [--tests OPTIONS]`.

For each package of `plugins` its wheel, the core's and those of packages that it requires are built and installed into
an environment of its own, with its extra `[test]`. Its tests run in a copy of its folder outside of the repository,
with what `reads` of `[tool.mirlo]` in its `pyproject.toml` names: pages and examples that the tests read.

The name `scaffolds` stands for the packages that `mirlo new` writes, a newcomer's first tasks: they are installed
beside the core's wheel, and their tests run.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from email.parser import Parser
from pathlib import Path

from mirlo.release.project import ROOT

WORK = ROOT / ".cache" / "wheel-tests"
SCAFFOLDS = ("operator", "pass", "codegen", "target")
"""What `mirlo new` writes: an operator, a pass with a rule, a code generator, a target with schedule rules."""


def build_wheel(folder: Path, wheels: Path) -> Path:
    """Build the wheel of the files in a folder that git knows or would add; return its path."""
    with tempfile.TemporaryDirectory() as copy:
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=folder, capture_output=True, text=True, check=True).stdout
        for name in filter(None, names.split("\0")):
            if (folder / name).is_file() and not (folder / name).is_symlink():
                target = Path(copy) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / name, target)
        before = set(wheels.glob("*.whl"))
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels)]
        subprocess.run([sys.executable, "-m", "pip", "wheel", *options, copy], check=True)
        (path,) = set(wheels.glob("*.whl")) - before
        return path


def requirements_of(wheel: Path) -> set[str]:
    """Return the names of the packages of `plugins` that a wheel requires, those of its extra `[test]` included."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(path).decode("utf-8"))
    needed = set()
    for requirement in fields.get_all("Requires-Dist", []):
        name, extra = re.match(r"mirlo-([\w-]+)", requirement), re.search(r'extra == "([\w-]+)"', requirement)
        if name is not None and (extra is None or extra[1] == "test"):
            needed.add(name[1])
    return needed


def build_with_requirements(name: str, wheels: Path) -> dict[str, Path]:
    """Build the wheels of the core, of a package and of the packages that it requires; return them by name."""
    built = {"": build_wheel(ROOT, wheels)}
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each not in built:
            built[each] = build_wheel(ROOT / "plugins" / each, wheels)
            waiting += requirements_of(built[each])
    return built


def make_environment(folder: Path, requirements: Sequence[str]) -> Path:
    """Make an environment with these requirements; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
    environment = {**os.environ, "PYTHONPATH": ""}
    subprocess.run([*pip, *requirements], env=environment, check=True)
    return python


def run_tests(python: Path, folder: Path, options: Sequence[str]) -> int:
    """Run the tests in a folder with the packages of an environment only; return pytest's exit code."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["XDG_CACHE_HOME"] = str(WORK / "cache")
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
    check = "import sys, mirlo; sys.exit(not mirlo.__file__.startswith(sys.prefix))"
    subprocess.run([python, "-c", check], cwd=folder, env=environment, check=True)
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def read_paths(name: str) -> list[str]:
    """Return the paths of the repository that the tests of a package read, beside its folder."""
    text = (ROOT / "plugins" / name / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^reads = \[(.*)\]$", text, re.MULTILINE)
    return re.findall(r'"([^"]+)"', listed[1]) if listed else []


def test_package(name: str, options: Sequence[str]) -> int:
    """Run the tests of a package beside installed wheels; return pytest's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "wheels").mkdir()
        built = build_with_requirements(name, work / "wheels")
        python = make_environment(WORK / name, list(_requirements(name, built)))
        copy = work / "copy" / "plugins" / name
        for path in ("pyproject.toml", "README.md", "tests"):
            _copy(ROOT / "plugins" / name / path, copy / path)
        for path in read_paths(name):
            _copy(ROOT / path, work / "copy" / path)
        return run_tests(python, copy, options)


def test_scaffolds(options: Sequence[str]) -> int:
    """Install what `mirlo new` writes beside the core's wheel, and run its tests; return the first exit code but 0."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "wheels").mkdir()
        core = build_wheel(ROOT, work / "wheels")
        requirements = [f"mirlo @ {core.as_uri()}", "pytest", "setuptools>=77", "onnxruntime", "lit", "filecheck"]
        python = make_environment(WORK / "scaffolds", requirements)
        codes = []
        for kind in SCAFFOLDS:
            name = f"my{kind}"
            command = [python, "-m", "mirlo.tools.cli", "new", kind, name, "--into", work]
            subprocess.run(command, cwd=work, check=True)
            install = ["install", "--quiet", "--no-build-isolation", "--no-deps", str(work / name)]
            environment = {**os.environ, "PYTHONPATH": ""}
            pip = [sys.executable, "-m", "pip", "--python", str(python)]
            subprocess.run([*pip, *install], env=environment, check=True)
            copy = work / "copy" / name  # without the modules: those that are installed are tested
            for path in ("pyproject.toml", "tests"):
                _copy(work / name / path, copy / path)
            codes.append(run_tests(python, copy, options))
        return max(codes)


def _requirements(name: str, built: Mapping[str, Path]) -> Iterator[str]:
    for each, wheel in built.items():
        extra = "[test]" if each == name else ""
        yield f"{f'mirlo-{each}' if each else 'mirlo'}{extra} @ {wheel.as_uri()}"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    else:
        shutil.copyfile(source, target)


def main() -> int:
    """Run the tests of the packages that the command line names; return 1 if some failed."""
    parser = argparse.ArgumentParser(prog="python -m release.wheel_tests")
    parser.add_argument("names", nargs="+", metavar="NAME", help="packages of `plugins`, or `scaffolds`")
    parser.add_argument("--tests", default="", help="options of pytest in one string, such as `-m 'not sample'`")
    arguments = parser.parse_args()
    failed = []
    for name in arguments.names:
        print(f"{name}:", flush=True)
        options = shlex.split(arguments.tests)
        code = test_scaffolds(options) if name == "scaffolds" else test_package(name, options)
        if code:
            failed.append(name)
    if failed:
        print(f"failed beside wheels: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
