"""The shape of the code: what may import what, how large files get, what a start costs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ROOT, output_of, python

SHIPPED = ("dialects", "frontends", "passes", "targets", "runtime", "driver", "tools")
MAX_LINES = 400

# The table of docs/architecture.md: what each folder may import besides itself.
ALLOWED: dict[str, tuple[str, ...]] = {
    "dialects": (),
    "frontends": ("dialects", "runtime.params", "runtime.errors", "runtime.dtypes", "runtime.kinds", "runtime.names"),
    "passes": ("dialects", "runtime.params", "runtime.errors", "runtime.dtypes", "runtime.external", "runtime.names"),
    "targets": ("dialects", "passes", "runtime"),
    "runtime": (),
    "driver": ("dialects", "frontends", "passes", "runtime"),
    "tools": ("dialects", "frontends", "passes", "targets", "runtime", "driver"),
}

FILES = sorted(path for folder in SHIPPED for path in (ROOT / folder).rglob("*.py"))
TESTED = [*FILES, *sorted((ROOT / "test").rglob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _names(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of each import, those inside functions included."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("folder", SHIPPED)
def test_imports_point_down(folder: str) -> None:
    allowed = tuple(f"mirlo.{name}" for name in (folder, *ALLOWED[folder]))
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in (ROOT / folder).rglob("*.py")
        for line, name in _names(path)
        if re.match(r"mirlo(\.|$)", name) and not (name + ".").startswith(tuple(f"{prefix}." for prefix in allowed))
    ]
    assert not wrong


def test_table_is_that_of_the_architecture_page() -> None:
    rows = re.findall(r"^\| `([\w/]+)`", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    assert {row.split("/")[0] for row in rows} == set(SHIPPED)


def test_one_module_names_the_bindings() -> None:
    naming = [
        str(path.relative_to(ROOT))
        for path in FILES
        if path != ROOT / "dialects" / "bindings.py"
        for _, name in _names(path)
        if re.match(r"(torch_)?mlir(\.|$)", name)
    ]
    assert not naming


def test_passes_name_no_target() -> None:
    naming = [str(p.relative_to(ROOT)) for p in (ROOT / "passes").rglob("*.py") if "mirlo.targets." in p.read_text()]
    assert not naming


# Targets for GPUs, and whose folders they may not look into.
APART = {"gpu": ("llvm", "nvvm", "spirv"), "nvvm": ("llvm", "spirv"), "spirv": ("llvm", "nvvm")}


@pytest.mark.parametrize("folder", APART)
def test_what_targets_share_is_in_no_target(folder: str) -> None:
    others = tuple(f"mirlo.targets.{other}." for other in APART[folder])
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in (ROOT / "targets" / folder).rglob("*.py")
        for line, name in _names(path)
        if name.startswith(others)
    ]
    assert not wrong


def test_files_are_short() -> None:
    long = {str(p.relative_to(ROOT)): n for p in TESTED if (n := len(p.read_text().splitlines())) > MAX_LINES}
    assert not long


def test_modules_say_what_they_are() -> None:
    silent = [str(p.relative_to(ROOT)) for p in TESTED if p.stat().st_size and not ast.get_docstring(_parsed(p))]
    assert not silent


# What a command must not import to start: these are what makes it slow.
SLOW = ("numpy", "onnx", "torch_mlir", "mlir", "llvmlite", "ml_dtypes", "onnxruntime")


def _imported(code: str) -> set[str]:
    """Which slow packages a program imports."""
    report = "import sys, json; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(output_of(python("-c", f"{code}\n{report}")).splitlines()[-1])
    return {name for name in SLOW if name in modules}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import mirlo", set()),
        ("from mirlo.tools.cli import main\ntry:\n  main(['--help'])\nexcept SystemExit: pass", set()),
        ("from mirlo.tools.cli import main\ntry:\n  main(['run', '--help'])\nexcept SystemExit: pass", set()),
        ("from mirlo.tools.cli import main\nmain(['run', 'no-such-file.onnx'])", set()),
        ("import mirlo.runtime.executable", {"numpy", "ml_dtypes"}),
        ("from mirlo.tools.opt import main\nmain(['--version'])", {"torch_mlir", "numpy"}),
    ],
    ids=["package", "help", "help-of-a-command", "missing-file", "run-time", "mirlo-opt"],
)
def test_start_imports_little(code: str, expected: set[str]) -> None:
    assert _imported(code) <= expected


def test_loading_a_compiled_model_imports_no_compiler(tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text(
        'func.func @main(%x: tensor<4xf32> {relax.name = "x"}) -> (tensor<4xf32> {relax.name = "y"}) {\n'
        '  %y = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %y : tensor<4xf32>\n}\n'
    )
    output_of(python("-m", "mirlo.tools.cli", "compile", "model.mlir", "-o", "m.mirlo", cwd=tmp_path))
    code = f"import mirlo, numpy\nmirlo.load({str(tmp_path / 'm.mirlo')!r})(numpy.ones(4, 'f'))"
    assert _imported(code) <= {"numpy", "ml_dtypes", "llvmlite"}
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in ("torch_mlir", "mlir", "onnx"))
    output_of(python("-c", f"import sys\n{blocked}{code}"))
