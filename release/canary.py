"""The tests with another wheel of MLIR: `python -m release.canary [--package NAME] [--version V] [--tests PATH...]`.

It makes an environment of its own, so that a newer wheel, or the package of another builder, is tried without changing
what pyproject.toml requires. Without a version it takes the newest one on the index, and ends at once if that is one
that `dialects/wheel.py` lists as tested.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from mirlo.dialects import wheel
from mirlo.release.project import ROOT, read_project

TESTS = ("test/dialects", "test/passes", "test/frontends/script", "plugins/stablehlo/tests", "test/end_to_end")
"""What depends most on the bindings. `--tests test` runs all."""
PROBE = "import mirlo.dialects.bindings as b; from mirlo.dialects import wheel; print(b.PACKAGE, wheel.installed())"


def make_environment(package: str, version: str | None, folder: Path) -> Path:
    """Make an environment with this wheel in the place of the usual one; return its Python."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    project = read_project()
    usual = [text for text in project["dependencies"] if not text.startswith(wheel.DEFAULT.package)]
    chosen = f"{package}=={version}" if version else package
    tests = project["optional-dependencies"]["test"]
    _run(python, "-m", "pip", "install", "--quiet", *usual, *tests, chosen)
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", str(ROOT))
    return python


def _run(*command: str | Path, check: bool = True) -> int:
    return subprocess.run([*map(str, command)], cwd=ROOT, check=check).returncode


def installed_version(python: Path, package: str) -> str:
    """Return the version of a package in an environment."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Try a wheel; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release.canary")
    parser.add_argument("--package", default=wheel.DEFAULT.package, help="the package (default: %(default)s)")
    parser.add_argument("--version", help="its version (default: the newest)")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files and folders for pytest and lit")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "canary", help="the environment")
    arguments = parser.parse_args()
    python = make_environment(arguments.package, arguments.version, arguments.folder)
    installed = f"{arguments.package} {installed_version(python, arguments.package)}"
    tested = {f"{each.package} {version}" for each in wheel.TESTED for version in each.versions}
    if installed in tested and arguments.version is None:
        print(f"{installed} is tested: there is no newer one")
        return 0
    if _run(python, "-c", PROBE, check=False):
        print(f"{installed}: the bindings do not load: see what they lack above, and dialects/wheel.py")
        return 1
    failed = _run(python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *arguments.tests, check=False)
    failed |= _run(python.with_name("lit"), "-s", "--no-progress-bar", *arguments.tests, check=False)
    outcome = "the tests fail" if failed else "the tests pass: add the version to TESTED in dialects/wheel.py"
    print(f"{installed}: {outcome}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
