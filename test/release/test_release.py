"""The checks of a release, the bill of materials, and what the recipe and the pages state."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pytest
from commands import ROOT

from mirlo.dialects import wheel
from mirlo.release.check import RECIPE, problems_of_packages, recipe_problems
from mirlo.release.project import changelog_sections, read_project, recipe_value
from mirlo.release.sbom import bill_of_materials

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="releases are made with Python 3.11 or newer")

METADATA = """\
Metadata-Version: 2.4
Name: mirlo
Version: 9.9.9
License-Expression: Apache-2.0
Requires-Dist: numpy>=1.26
Requires-Dist: onnx>=1.18
Requires-Dist: pygls>=2; extra == "lsp"

The README.
"""


@pytest.fixture
def built(tmp_path: Path) -> Path:
    path = tmp_path / "mirlo-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mirlo/__init__.py", "")
        archive.writestr("mirlo-9.9.9.dist-info/METADATA", METADATA)
    return path


def test_the_bill_lists_what_a_plain_installation_brings(built: Path) -> None:
    bill = bill_of_materials(built)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    names = {component["name"] for component in bill["components"]}
    assert {"numpy", "onnx", "protobuf"} <= names and "pygls" not in names
    assert all(component["purl"].endswith(f"@{component['version']}") for component in bill["components"])
    known = {component["bom-ref"] for component in bill["components"]} | {"pkg:pypi/mirlo@9.9.9"}
    assert {each["ref"] for each in bill["dependencies"]} == known
    assert {on for each in bill["dependencies"] for on in each["dependsOn"]} <= known
    licenses = {component["name"]: component["licenses"] for component in bill["components"]}
    assert licenses["onnx"] and licenses["numpy"]
    assert bill["serialNumber"] == bill_of_materials(built)["serialNumber"]


def test_packages_are_checked(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirlo.release.check.MOST_BYTES", 100)
    assert any("expected one wheel and one source" in each for each in problems_of_packages(built.parent, "9.9.9"))
    with zipfile.ZipFile(built, "a") as archive:
        archive.writestr("mirlo/test/x.py", "")
        archive.writestr("other/x.py", "")
    import tarfile

    with tarfile.open(built.parent / "mirlo-9.9.9.tar.gz", "w:gz"):
        pass
    problems = "\n".join(problems_of_packages(built.parent, "9.9.8"))
    for words in (
        "version 9.9.9, expected 9.9.8",
        "bytes, expected at most 100",
        "'other/x.py' is outside",
        "'mirlo/test/x.py' is for those",
        "no LICENSE",
    ):
        assert words in problems


def test_sections_of_the_changelog() -> None:
    found = changelog_sections("# Changelog\n\n## Unreleased\n\n## 1.2.3 (2026-01-02)\n\n- A line.\n")
    assert found == {"Unreleased": "", "1.2.3": "- A line."}
    assert "Unreleased" in changelog_sections((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))


def test_the_recipe_states_what_the_project_does() -> None:
    recipe = RECIPE.read_text(encoding="utf-8")
    project = read_project()
    assert recipe_value(recipe, "version") == project["version"]
    assert list(recipe_problems(recipe, project["dependencies"])) == []
    assert list(recipe_problems(recipe, ["numpy>=1.27"])) == [
        "release/conda/recipe.yaml: expected 'numpy >=1.27', as pyproject.toml has"
    ]
    for name, function in project["scripts"].items():
        assert f"- {name} = {function}" in recipe


def test_tested_wheels_are_stated_once() -> None:
    assert wheel.REQUIREMENT in read_project()["dependencies"]
    page = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8").partition("## What an installation")[0]
    rows = dict(re.findall(r"^\| `([\w-]*mlir)` \| ([\d., to]+) \|", page, re.MULTILINE))
    assert rows == {each.package: str(each).partition(" ")[2] for each in wheel.TESTED}
    workflow = (ROOT / ".github" / "workflows" / "canary.yml").read_text(encoding="utf-8")
    (matrix,) = re.findall(r"package: \[(.*)\]", workflow)
    assert matrix.split(", ") == [each.package for each in wheel.TESTED]
