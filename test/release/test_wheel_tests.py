"""How the tests of packages run beside installed wheels; `make test-wheels` runs them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from commands import ROOT

from mirlo.release.wheel_tests import SCAFFOLDS, build_wheel, read_paths, requirements_of, run_tests

NAMES = sorted(path.parent.name for path in (ROOT / "plugins").glob("*/CHANGELOG.md"))
METADATA = """\
Metadata-Version: 2.4
Name: mirlo-one
Version: 9.9.9
Requires-Dist: mirlo
Requires-Dist: numpy>=1.26
Requires-Dist: mirlo-two[jax]
Requires-Dist: mirlo-three; extra == "test"
Requires-Dist: pytest>=8; extra == "test"
Requires-Dist: mirlo-four; extra == "ranks"
"""


def test_packages_that_tests_need_are_read_from_the_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "mirlo_one-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("mirlo_one-9.9.9.dist-info/METADATA", METADATA)
    assert requirements_of(wheel) == {"two", "three"}
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("mirlo_one-9.9.9.dist-info/METADATA", METADATA.partition("Requires")[0])
    assert requirements_of(wheel) == set()


@pytest.mark.parametrize("name", NAMES)
def test_what_tests_read_of_the_repository_is_there(name: str) -> None:
    missing = [path for path in read_paths(name) if not (ROOT / path).exists()]
    assert not missing, f"plugins/{name}/pyproject.toml: reads"


def test_some_packages_read_pages() -> None:
    assert "docs" in read_paths("llm") and read_paths("sklearn") == []


def test_a_wheel_has_no_file_that_git_ignores(tmp_path: Path) -> None:
    package, wheels = tmp_path / "package", tmp_path / "wheels"
    (package / "mirlo_one").mkdir(parents=True)
    wheels.mkdir()
    subprocess.run(["git", "init", "--quiet", package], check=True)
    project = '[project]\nname = "mirlo-one"\nversion = "9.9.9"\n[tool.setuptools]\npackages = ["mirlo_one"]\n'
    for name, text in {"pyproject.toml": project, ".gitignore": "old.py\n", "mirlo_one/__init__.py": ""}.items():
        (package / name).write_text(text)
    (package / "mirlo_one" / "old.py").write_text("")
    with zipfile.ZipFile(build_wheel(package, wheels)) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".py")]
    assert modules == ["mirlo_one/__init__.py"]


def test_a_clone_on_the_path_is_no_environment_of_wheels(tmp_path: Path) -> None:
    """Tests beside wheels must not import the clone."""
    with pytest.raises(subprocess.CalledProcessError):
        run_tests(Path(sys.executable), tmp_path, [])


def test_scaffolds_are_what_the_command_writes() -> None:
    from mirlo.tools.new import KINDS

    assert set(SCAFFOLDS) == set(KINDS)
