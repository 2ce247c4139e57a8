"""Checks before a release: `python -m release.check [--dist FOLDER]`. It prints every problem, and changes nothing."""

from __future__ import annotations

import argparse
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

from mirlo.release.project import ROOT, UNRELEASED, read_changelog, read_project, recipe_value

RECIPE = ROOT / "release" / "conda" / "recipe.yaml"
MOST_BYTES = 3_800_000
"""The size of Mirlo's wheel: what takes more is left out, or is a package of its own."""
_VERSION = re.compile(r"\d+\.\d+\.\d+(rc\d+)?")


def problems_of_files() -> Iterator[str]:
    """Yield the problems of the files that state a version or a requirement."""
    from mirlo.dialects import wheel

    project = read_project()
    version = project["version"]
    if not _VERSION.fullmatch(version):
        yield f"pyproject.toml: version {version} is not MAJOR.MINOR.PATCH, or such a version with rcN"
    sections = read_changelog()
    if not sections.get(version):
        yield f"CHANGELOG.md: no section '## {version}': move what stands under '## {UNRELEASED}' there, with the date"
    if sections.get(UNRELEASED):
        yield f"CHANGELOG.md: '## {UNRELEASED}' is not empty: it belongs to {version}"
    recipe = RECIPE.read_text(encoding="utf-8")
    if recipe_value(recipe, "version") != version:
        yield f"{RECIPE.relative_to(ROOT)}: version is {recipe_value(recipe, 'version')}, expected {version}"
    yield from recipe_problems(recipe, project["dependencies"])
    if wheel.REQUIREMENT not in project["dependencies"]:
        yield f"pyproject.toml: expected '{wheel.REQUIREMENT}', which dialects/wheel.py says is tested"


def recipe_problems(recipe: str, dependencies: list[str]) -> Iterator[str]:
    """Yield the requirements that the conda recipe states otherwise."""
    for text in dependencies:
        name = re.split(r"[<>=!~ ]", text)[0]
        bound = text[len(name) :]
        # What conda has no package of is installed by pip; its name is in the recipe as well.
        if not re.search(rf"\b{re.escape(name)} ?{re.escape(bound)}(?![\w.])", recipe):
            yield f"{RECIPE.relative_to(ROOT)}: expected '{name} {bound}', as pyproject.toml has"


def problems_of_git(version: str) -> Iterator[str]:
    """Yield the problems of the clone."""
    if _git("status", "--porcelain"):
        yield "git: files are changed and not committed"
    if _git("tag", "--list", f"v{version}"):
        yield f"git: there is a tag v{version} already: choose another version"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()


def problems_of_packages(folder: Path, version: str) -> Iterator[str]:
    """Yield the problems of the wheel and the source distribution in a folder."""
    wheels, sources = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sources) != 1:
        yield f"{folder}: expected one wheel and one source distribution, found {len(wheels)} and {len(sources)}"
        return
    size = wheels[0].stat().st_size
    if size > MOST_BYTES:
        yield f"{wheels[0].name}: {size} bytes, expected at most {MOST_BYTES}; look for large files in it"
    with zipfile.ZipFile(wheels[0]) as archive:
        names = archive.namelist()
        (path,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(path).decode("utf-8"))
    if fields["Version"] != version:
        yield f"{wheels[0].name}: version {fields['Version']}, expected {version}"
    for name in ("License-Expression", "Requires-Python", "Summary", "Description-Content-Type", "License-File"):
        if not fields[name]:
            yield f"{wheels[0].name}: no {name}"
    if not fields.get_payload():
        yield f"{wheels[0].name}: no description: the README is missing"
    for name in names:
        if not name.startswith(("mirlo/", f"mirlo-{version}.dist-info/")):
            yield f"{wheels[0].name}: '{name}' is outside of the package"
        if name.startswith(("mirlo/test/", "mirlo/benchmarks/", "mirlo/release/")):
            yield f"{wheels[0].name}: '{name}' is for those who work on Mirlo"
    with tarfile.open(sources[0]) as archive_of_sources:
        members = {member.name.partition("/")[2] for member in archive_of_sources.getmembers()}
    for name in ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "test/conftest.py"):
        if name not in members:
            yield f"{sources[0].name}: no {name}"


def main() -> int:
    """Print the problems; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release.check")
    parser.add_argument("--dist", type=Path, help="check the packages in this folder, too")
    arguments = parser.parse_args()
    version = read_project()["version"]
    problems = [*problems_of_files(), *problems_of_git(version)]
    if arguments.dist is not None:
        problems += problems_of_packages(arguments.dist, version)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{version} can be released")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
