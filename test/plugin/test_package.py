"""Targets as plug-ins: a package outside the tree is installed, and found; broken ones are errors that name them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import ROOT, mirlo, output_of, python, run_script, without_code

from mirlo.dialects.core.installed import GROUPS
from mirlo.runtime.extenders import _GROUPS

PACKAGE = ROOT / "test" / "plugin"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package installed."""
    folder = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source")
    for path in [PACKAGE / "pyproject.toml", *(PACKAGE / "mirlo_npu").glob("*.py")]:
        copy = source / path.relative_to(PACKAGE)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    command = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", folder, source]
    output_of(python("-m", *command))
    return folder


@pytest.mark.sample(0)
def test_its_own_tests_pass(site: Path) -> None:
    done = run_script(
        "-m", "pytest", "-q", "-c", PACKAGE / "pyproject.toml", "--rootdir", PACKAGE, PACKAGE / "tests", site=[site]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    done = python("-m", "lit.main", "-v", PACKAGE / "tests", site=[site])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sample(0)
def test_commands_find_it(site: Path) -> None:
    listed = output_of(mirlo("targets", site=[site]))
    assert re.search(r"^npu +npu → llvm → default  +an imaginary matrix unit", listed, re.MULTILINE)
    out = output_of(mirlo("explain", "relax.matmul", "--target", "npu", cwd=site, site=[site]))
    lines = out.splitlines()
    assert lines[0] == "relax.matmul on npu → llvm → default: legalization, tried in this order"
    assert re.fullmatch(
        r"  1\.  matmul  \[npu\] +mirlo_npu/rules.py:\d+ +Products of matrices in whole tiles\.", lines[1]
    )
    assert lines[-1].split()[1:3] == ["matmul", "[default]"]


@pytest.mark.sample(0)
def test_passes_of_it_run_alone(site: Path, tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(
        "func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {\n"
        '  %0 = "relax.matmul"(%x, %x) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>\n'
        '  %1 = "relax.relu"(%0) : (tensor<4x4xf32>) -> tensor<4x4xf32>\n  return %1 : tensor<4x4xf32>\n}\n'
    )
    out = output_of(
        run_script("-m", "mirlo.tools.opt", "m.mlir", "--npu-claim", "--remove-dead", cwd=tmp_path, site=[site])
    )
    assert '"npu.gemm"(%arg0, %arg0) {relu = true}' in out and "relax" not in out


def _broken(folder: Path, package: str, entry_points: str, code: str = "") -> Path:
    """Return a folder in which a package is installed that has these entry points."""
    info = folder / package / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    (folder / package / f"{package}.py").write_text(code)
    return folder / package


TARGETS = "[mirlo.targets]\nnpu = {module}:TARGET\n"
DIALECTS = "[mirlo.dialects]\nnpu = {module}:DIALECT\n"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("entry_points", "code", "message"),
    [
        (
            TARGETS,
            "import no_such_driver",
            "target 'npu' of package 'other' does not load: No module named 'no_such_driver'",
        ),
        (TARGETS, "TARGET = 'npu'", "target 'npu' of package 'other' is a str, not a mirlo Target"),
        (TARGETS, "", "target 'npu' of package 'other' does not load: module 'other' has no attribute 'TARGET'"),
        (
            TARGETS,
            "from mirlo.extend.target import Target\nTARGET = Target('tpu', 'x')",
            "target 'npu' of package 'other' calls itself 'tpu': both names must be one",
        ),
        (
            TARGETS,
            "from mirlo.extend.target import Target\nTARGET = Target('npu', 'x', parent='lvm')",
            "target 'npu' of package 'other' has a parent 'lvm', which is not installed",
        ),
        (
            TARGETS,
            "from mirlo.extend.target import Target\nTARGET = Target('npu', 'x', rule_modules=('other_rules',))",
            "target 'npu' of package 'other' does not load: No module named 'other_rules'",
        ),
        (
            DIALECTS,
            "from mirlo.extend.ops import register_dialect\nDIALECT = register_dialect('relax')",
            "dialect 'npu' of package 'other' does not load: dialect 'relax' is registered already, by module 'mirlo': "
            "module 'other' must choose another namespace",
        ),
        (
            DIALECTS,
            "from mirlo.extend.ops import register_dialect\nDIALECT = register_dialect('tpu')",
            "entry point 'npu' of package 'other' in group mirlo.dialects is the dialect 'tpu': "
            'expected what register_dialect("npu") gave',
        ),
    ],
    ids=["import", "type", "name", "other-name", "parent", "rules", "clash-of-dialects", "dialect"],
)
def test_broken_packages_are_named(entry_points: str, code: str, message: str, tmp_path: Path) -> None:
    broken = _broken(tmp_path, "other", entry_points.format(module="other"), code)
    done = mirlo("explain", "relax.relu", "--target", "npu", site=[broken])
    assert (done.returncode, without_code(done.stderr)) == (1, f"mirlo: error: {message}\n")


RULE = """
from typing import Annotated
from mirlo.extend.rules import Choice, decline, schedule
from mirlo.extend.schedules import Schedule

@schedule(target="llvm", priority=1000)
def thirds(kernel, context, rows: Annotated[int, Choice(range(1, 9), "rows of a tile", tried=(2, 4))] = 3):
    "Schedule one block in tiles of rows."
    s = Schedule(kernel.view.op)
    if len(s.blocks()) != 1:
        return decline("not one block")
    s.split(s.loops(s.blocks()[0])[0], (None, rows))
    return s.emit(choices={"rows": rows})
"""
RELU = """func.func @main(%x: tensor<7x9xf32>) -> tensor<7x9xf32> {
  %0 = "relax.relu"(%x) : (tensor<7x9xf32>) -> tensor<7x9xf32>
  return %0 : tensor<7x9xf32>
}
"""


def test_rules_of_a_package_need_no_flag(tmp_path: Path) -> None:
    """A schedule rule for a target of others: one file, and one line that names it."""
    package = _broken(tmp_path, "thirds", "[mirlo.rules]\nthirds = thirds\n", RULE)
    (tmp_path / "m.mlir").write_text(RELU)
    listed = output_of(mirlo("explain", "schedule", site=[package]))
    assert re.search(r"^  1\. +thirds +\[llvm\] +priority 1000 .*Schedule one block", listed, re.MULTILINE)
    explained = output_of(mirlo("explain", tmp_path / "m.mlir", site=[package]))
    assert "schedule: thirds [llvm]" in explained


@pytest.mark.parametrize(
    ("entry_points", "code", "message"),
    [
        (
            "[mirlo.rulez]\nmine = other\n",
            RULE,
            "in group mirlo.rulez, which Mirlo does not read; did you mean 'mirlo.rules'?",
        ),
        (
            "[mirlo.targets]\nmine = other\n",
            RULE,
            "in group mirlo.targets is the module 'other': expected 'other:NAME'. Modules that",
        ),
        (
            "[mirlo.passes]\nmine = other\n",
            RULE,
            "in group mirlo.passes has no pass, so that nothing imports it: 'other'",
        ),
    ],
)
def test_entries_that_nothing_reads_are_a_warning(entry_points: str, code: str, message: str, tmp_path: Path) -> None:
    package = _broken(tmp_path, "other", entry_points, code)
    (tmp_path / "m.mlir").write_text(RELU)
    done = mirlo("explain", tmp_path / "m.mlir", site=[package])
    assert done.returncode == 0 and "entry point 'mine' of package 'other'" in done.stderr and message in done.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1", "registers no rule: expected a module with rules, such as functions with @schedule(target=...)"),
        ("import no_such_driver", "does not load: ModuleNotFoundError: No module named 'no_such_driver'"),
    ],
)
def test_rules_of_a_package_that_are_none_are_an_error(code: str, message: str, tmp_path: Path) -> None:
    package = _broken(tmp_path, "other", "[mirlo.rules]\nmine = other\n", code)
    done = mirlo("explain", "relax.relu", site=[package])
    where = "entry point 'mine' of package 'other' in group mirlo.rules"
    assert (done.returncode, without_code(done.stderr)) == (1, f"mirlo: error: {where} {message}\n")


def test_the_groups_that_are_read_are_known() -> None:
    assert set(_GROUPS) < set(GROUPS)
    declared = re.findall(
        r'^\[project.entry-points."(mirlo\.\w+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert declared and set(declared) < set(GROUPS)


def test_two_packages_with_one_target(site: Path, tmp_path: Path) -> None:
    other = _broken(tmp_path, "other", TARGETS.format(module="other"))
    done = mirlo("explain", "relax.relu", "--target", "npu", site=[site, other])
    expected = "target 'npu' is offered by two packages: 'mirlo-npu' and 'other'; uninstall one"
    assert (done.returncode, without_code(done.stderr)) == (1, f"mirlo: error: {expected}\n")


def test_two_packages_with_one_dialect(site: Path, tmp_path: Path) -> None:
    other = _broken(
        tmp_path, "other", DIALECTS.format(module="other"),
        "from mirlo.extend.ops import register_dialect\nDIALECT = register_dialect('npu')",
    )  # fmt: skip
    done = mirlo("explain", "relax.relu", site=[site, other])
    expected = "dialect 'npu' is offered by two packages: 'mirlo-npu' and 'other'; uninstall one"
    assert (done.returncode, without_code(done.stderr)) == (1, f"mirlo: error: {expected}\n")


def test_a_broken_target_is_listed(tmp_path: Path) -> None:
    broken = _broken(tmp_path, "other", TARGETS.format(module="other"), "1 / 0")
    out = output_of(mirlo("targets", site=[broken]))
    assert "broken: target 'npu' of package 'other' does not load: division by zero" in out


BARE = """
from mirlo.extend.target import LlvmTarget, Pipeline, Target

class Bare(Target):
    emit = LlvmTarget.emit

    def pipeline(self, options):
        edited = Pipeline.named("llvm", options).for_target("bare")
        return str(edited.replace("schedule", "schedule"))

TARGET = Bare("bare", "no rules of its own")
"""


def test_a_target_without_rules_computes_by_the_default_ones(tmp_path: Path) -> None:
    bare = _broken(tmp_path, "other", "[mirlo.targets]\nbare = other:TARGET\n", BARE)
    only = ("--operator", "relax.exp", "--operator", "relax.add", "--operator", "tir.exp")
    lines = output_of(mirlo("check-target", "bare", *only, site=[bare])).splitlines()
    assert lines[1].split() == ["relax.exp", *["ok"] * 4, *["-"] * 5]
    assert lines[2].split() == ["relax.add", *["ok"] * 8, "-"]
    assert lines[-1] == "bare: 16 checks of 3 operators and intrinsics: 16 ok, 0 declined, 0 wrong, 0 failed"
