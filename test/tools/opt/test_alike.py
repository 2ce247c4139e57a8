"""Uses of LLVM's driver, by it and by `mirlo-opt`: the same output and exit code, but where a reason is listed."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import pytest

from mirlo.dialects.bindings import PACKAGE
from mirlo.tools.opt import main

DRIVERS = sorted(Path(importlib.import_module(f"{PACKAGE}._mlir_libs").__file__ or "").parent.glob("*-opt"))
pytestmark = pytest.mark.skipif(not DRIVERS, reason=f"the package {PACKAGE} has no program of LLVM's driver")
FILES = {
    "f": """
func.func @f(%x: i32) -> (i32, i32) {
  %a = arith.constant 1 : i32 loc("one")
  %b = arith.constant 1 : i32
  %c = arith.addi %x, %a : i32
  %d = arith.addi %x, %b : i32
  return %c, %d : i32, i32
}
func.func private @g(tensor<4xf32>)
""",
    "module": "module { func.func @f() { return } }\n",
    "split": "func.func @a() { return }\n// -----\nfunc.func @b() { %c = arith.constant 2 : i32 return }\n",
    "marked": "func.func @a() { return }\n// ==\nfunc.func @b() { return }\n",
    "wrong": "func.func @a() -> i32 { return }\n",
    "expected": """
func.func @a() -> i32 {
  // expected-error @+1 {{'func.return' op has 0 operands}}
  "func.return"() : () -> ()
}
""",
    "unexpected": """
func.func @a() -> i32 {
  // expected-error @+1 {{nothing like it}}
  "func.return"() : () -> ()
}
""",
    "unregistered": '"foo.bar"() : () -> ()\n',
    "constants": """
func.func @f() -> tensor<200xi32> {
  %a = arith.constant dense<"0x0100000002000000"> : tensor<2xi32>
  %b = arith.constant dense<[1, 2, 3, 4, 5, 6, 7, 8]> : tensor<8xi32>
  %c = arith.constant dense<7> : tensor<200xi32>
  return %c : tensor<200xi32>
}
""",
}
PIPELINE = "--pass-pipeline=builtin.module"
USES = (
    "f", "f --cse", "f -cse", "f --canonicalize --cse", f"f {PIPELINE}(func.func(cse))", "f -p=builtin.module(cse)",
    "f --pass-pipeline=any(cse)", "f --canonicalize=max-iterations=2", "f --canonicalize=max-iterations=x",
    "f --canonicalize=nothing=2", "f --no-such-pass", f"f {PIPELINE}(nothing)", f"f {PIPELINE}(cse",
    f"f --cse {PIPELINE}(cse)", "missing", "f f", "f --mlir-print-op-generic", "f --mlir-print-debuginfo",
    "f --mlir-print-local-scope --mlir-print-debuginfo", "f --mlir-print-debuginfo --mlir-pretty-debuginfo",
    "f --mlir-use-nameloc-as-prefix", "f --mlir-print-skip-regions", "f --mlir-print-assume-verified",
    "f --verify-roundtrip", "f --verify-each=false --cse", "f --no-implicit-module", "module --no-implicit-module",
    "module --no-implicit-module --cse", "f --dump-pass-pipeline --cse", "f --mlir-print-ir-after-all --cse",
    "f --mlir-print-ir-before-all --cse", "f --mlir-print-ir-after=cse --canonicalize --cse",
    "f --mlir-print-ir-before=cse --canonicalize --cse",
    "f --mlir-print-ir-after-all --mlir-print-ir-after-change --cse --cse", "f --mlir-print-ir-after-failure --cse",
    f"f --mlir-print-ir-after-all --mlir-print-ir-module-scope --mlir-disable-threading {PIPELINE}(func.func(cse))",
    "f --mlir-disable-threading --cse", "f --mlir-timing --cse", "f --mlir-pass-statistics --cse", "split",
    "split --split-input-file", "split --split-input-file --cse", "marked --split-input-file=//\N{NO-BREAK SPACE}==",
    "split --split-input-file --output-split-marker=//\N{NO-BREAK SPACE}~~", "wrong", "wrong --verify-diagnostics",
    "wrong --mlir-print-op-on-diagnostic=false", "expected --verify-diagnostics", "unexpected --verify-diagnostics",
    "unexpected --verify-diagnostics=only-expected", "unregistered", "unregistered --allow-unregistered-dialect",
    "constants", "constants --mlir-elide-elementsattrs-if-larger=4",
    "constants --mlir-elide-elementsattrs-if-larger=0x4", "f --print-op-stats", "f --inline", "f --symbol-dce",
    "f --mlir-diagnostic-verbosity-level=errors", "f --mlir-generate-reproducer=out --cse", "f --o=out", "f -o out",
    "f --log-actions-to=out --cse",
)  # fmt: skip
"""A file and flags; a no-break space stands for a space in a value."""
DIFFERENT = {
    "f --pass-pipeline=func.func(cse)": "the outermost builtin.module may be left out",
    "f --show-dialects": "one line for each dialect, and the wheel's own program registers fewer",
    "f --list-passes": "the passes are Mirlo's, and have one line each",
    "f --log-actions-to=- --cse": "there are no threads to name, and passes have the names of pipelines",
}
"""Uses whose output differs, and why."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("alike")
    for name, text in FILES.items():
        (path / name).write_text(text, encoding="utf-8")
    return path


def _results(use: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> list[tuple[int, str]]:
    """Return whether it fails, and the output, of LLVM's driver and of `mirlo-opt`."""
    arguments = [word.replace("\N{NO-BREAK SPACE}", " ") for word in use.split(" ")]
    theirs = subprocess.run([DRIVERS[0], *arguments], cwd=folder, capture_output=True, text=True)
    capfd.readouterr()
    ours = main(arguments)
    return [(theirs.returncode != 0, theirs.stdout.strip()), (ours != 0, capfd.readouterr().out.strip())]


@pytest.mark.parametrize("use", USES)
def test_uses(use: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    theirs, ours = _results(use, folder, capfd)
    assert ours == theirs


@pytest.mark.parametrize("use", DIFFERENT)
def test_differences(
    use: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no longer differs leaves the list."""
    monkeypatch.chdir(folder)
    theirs, ours = _results(use, folder, capfd)
    assert ours != theirs
