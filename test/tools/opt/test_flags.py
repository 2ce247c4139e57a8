"""The flags of `mirlo-opt`: all of LLVM's driver are known, and the page lists them."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path

import pytest
from commands import ROOT, python

from mirlo.dialects.bindings import PACKAGE
from mirlo.tools.opt_flags import (
    FLAGS,
    IGNORED,
    OptArguments,
    UsageError,
    flags_table,
    overall_help,
    parse_arguments,
)

OF_LLVM = (
    "allow-unregistered-dialect", "color", "debug", "debug-only=x", "dump-pass-pipeline",
    "elide-resource-data-from-bytecode", "emit-bytecode", "emit-bytecode-producer=x", "emit-bytecode-version=1",
    "help", "help-hidden", "help-list", "help-list-hidden", "irdl-file=x", "list-passes", "load-dialect-plugin=x",
    "load-pass-plugin=x", "log-actions-to=x", "log-mlir-actions-filter=x", "mlir-debug-counter=x",
    "mlir-diagnostic-verbosity-level=errors", "mlir-disable-diagnostic-notes", "mlir-disable-threading",
    "mlir-elide-elementsattrs-if-larger=1", "mlir-elide-resource-strings-if-larger=1", "mlir-enable-debugger-hook",
    "mlir-generate-reproducer=x", "mlir-output-format=text", "mlir-pass-pipeline-crash-reproducer=x",
    "mlir-pass-pipeline-local-reproducer", "mlir-pass-statistics", "mlir-pass-statistics-display=list",
    "mlir-pretty-debuginfo", "mlir-print-assume-verified", "mlir-print-debug-counter", "mlir-print-debuginfo",
    "mlir-print-elementsattrs-with-hex-if-larger=0x10", "mlir-print-ir-after=cse", "mlir-print-ir-after-all",
    "mlir-print-ir-after-change", "mlir-print-ir-after-failure", "mlir-print-ir-before=cse",
    "mlir-print-ir-before-all", "mlir-print-ir-module-scope", "mlir-print-ir-tree-dir=x", "mlir-print-local-scope",
    "mlir-print-op-generic", "mlir-print-op-on-diagnostic", "mlir-print-skip-regions",
    "mlir-print-stacktrace-on-diagnostic", "mlir-print-unique-ssa-ids", "mlir-print-value-users", "mlir-timing",
    "mlir-timing-display=tree", "mlir-use-nameloc-as-prefix", "mlir-very-unsafe-disable-verifier-on-parsing",
    "no-implicit-module", "o=x", "output-split-marker=x", "p=cse", "pass-pipeline=cse", "print-all-options",
    "print-options", "profile-actions-to=x", "remark-format=yaml", "remark-policy=all", "remarks-filter=x",
    "remarks-filter-analyse=x", "remarks-filter-failed=x", "remarks-filter-missed=x", "remarks-filter-passed=x",
    "remarks-output-file=x", "run-reproducer", "show-dialects", "split-input-file", "split-input-file=x",
    "verify-diagnostics", "verify-diagnostics=all", "verify-diagnostics=only-expected", "verify-each",
    "verify-each=false", "verify-roundtrip", "version",
)  # fmt: skip
"""The flags of LLVM's driver that are not passes, as its help lists them, with values for those that need one."""
LIBRARIES_OF_MLIR = Path(importlib.import_module(f"{PACKAGE}._mlir_libs").__file__ or "").parent
DRIVERS = sorted(LIBRARIES_OF_MLIR.glob("*-opt"))
"""The program of LLVM's driver in the package with MLIR, where it has one."""
OF_CODE_GENERATION = frozenset({
    "always-rename-promoted-locals", "crash-diagnostics-dir", "debug-counter-break-on-last", "disable-i2p-p2i-opt",
    "disable-symbolication", "elide-all-zero-branch-weights", "enable-fs-discriminator", "import-constants-with-refs",
    "info-output-file", "non-global-value-max-name-size", "opt-bisect", "opt-bisect-limit", "opt-bisect-verbose",
    "opt-disable", "pass-remarks", "pass-remarks-analysis", "pass-remarks-missed", "pick-merged-source-locations",
    "preserve-ll-uselistorder", "print-addrspace-name", "print-debug-counter", "print-debug-counter-queries",
    "print-inst-addrs", "print-inst-debug-locs", "print-prof-data", "profcheck-disable-metadata-fixes",
    "propagate-attrs", "remarks-section", "rng-seed", "sort-timers", "stats", "stats-json", "track-memory",
    "use-constant-int-for-fixed-length-splat", "use-constant-int-for-scalable-splat",
    "use-dereferenceable-at-point-semantics",
})  # fmt: skip
"""Flags of LLVM's libraries for LLVM IR, which each of its programs has and which say nothing about MLIR."""
needs_driver = pytest.mark.skipif(not DRIVERS, reason=f"the package {PACKAGE} has no program of LLVM's driver")


@needs_driver
def test_the_list_is_that_of_the_driver() -> None:
    done = subprocess.run([DRIVERS[0], "--help-list-hidden"], capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^  --?([a-z][a-z-]*)(?=[ =\[])", done.stdout, re.MULTILINE))
    assert len(listed) >= 80
    known = {flag.partition("=")[0] for flag in OF_LLVM}
    assert listed - OF_CODE_GENERATION - {"debug-counter", "h"} <= known
    optional = {"debug", "debug-only"}  # in builds with assertions
    assert known - listed <= optional


@needs_driver
def test_the_driver_runs_our_reproducers(tmp_path: Path) -> None:
    source, file, found = (tmp_path / name for name in ("f.mlir", "reproducer.mlir", "out.mlir"))
    source.write_text(
        "func.func @f() -> (i32, i32) {\n  %a = arith.constant 1 : i32\n  %b = arith.constant 1 : i32\n"
        "  return %a, %b : i32, i32\n}\n",
        encoding="utf-8",
    )
    written = python("-m", "mirlo.tools.opt", source, "--cse", f"--mlir-generate-reproducer={file}", "-o", found)
    assert written.returncode == 0, written.stderr
    again = subprocess.run([DRIVERS[0], "--run-reproducer", file], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("arith.constant") == 1
    assert again.stdout.split() == found.read_text(encoding="utf-8").split()


@needs_driver
def test_we_run_reproducers_of_the_driver(tmp_path: Path) -> None:
    source, file = tmp_path / "f.mlir", tmp_path / "reproducer.mlir"
    source.write_text(
        "func.func @f() -> i32 {\n  %a = arith.constant 1 : i32\n  return %a : i32\n}\n", encoding="utf-8"
    )
    options = ("--pass-pipeline=builtin.module(func.func(cse,canonicalize))", f"--mlir-generate-reproducer={file}")
    subprocess.run([DRIVERS[0], source, *options], capture_output=True, text=True, check=True)
    assert "external_resources" in file.read_text(encoding="utf-8")
    done = python("-m", "mirlo.tools.opt", "--run-reproducer", file)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "arith.constant 1" in done.stdout


@pytest.mark.parametrize("flag", OF_LLVM)
def test_flags_of_llvm_are_known(flag: str) -> None:
    for dashes in ("-", "--"):
        arguments = parse_arguments([f"{dashes}{flag}"])
        assert arguments.passes == [], "it is no pass"
        is_default = flag in ("verify-each", "mlir-print-op-on-diagnostic", "mlir-timing-display=tree")
        assert is_default or arguments.ignored or arguments != OptArguments()


def test_flags_in_the_library_are_known() -> None:
    """What the package with MLIR adds in another version is missed here first."""
    names = {flag.name for flag in (*FLAGS, *IGNORED)}
    libraries = [
        path for path in LIBRARIES_OF_MLIR.iterdir() if ".so" in path.name or path.suffix in (".dylib", ".dll")
    ]
    found = {
        name
        for path in libraries
        for name in re.findall(rb"\0(mlir-(?:print|elide|disable|pretty|use)-[a-z-]+)\0", path.read_bytes())
    }
    assert len(found) >= 10
    assert {f"--{name.decode()}" for name in found} <= names


def test_each_flag_is_declared_once() -> None:
    names = [name for flag in (*FLAGS, *IGNORED) for name in (flag.name, flag.negated, *flag.aliases) if name]
    assert len(names) == len(set(names))
    assert all(flag.name in overall_help() for flag in (*FLAGS, *IGNORED))


def test_the_page_lists_all_flags() -> None:
    page = (ROOT / "docs" / "mirlo-opt.md").read_text(encoding="utf-8")
    table = page.partition("<!-- begin flags -->\n")[2].partition("<!-- end flags -->")[0]
    assert table == "\n".join(flags_table()), "python -m mirlo.tools.opt_flags prints the table"


@pytest.mark.parametrize(("given", "message"), [
    ("--mlir-timing=yes", "flag '--mlir-timing' is true or false, got 'yes'"),
    ("--no-verify-each=true", "flag '--no-verify-each' takes no value, got 'true'"),
    ("--verify-diagnostics=some", "flag '--verify-diagnostics' is all or only-expected, got 'some'"),
    ("--emit-bytecode-version=many", "flag '--emit-bytecode-version' needs a number, got 'many'"),
    ("--emit-bytecode-producer", "flag '--emit-bytecode-producer' needs a value: --emit-bytecode-producer=TEXT"),
])  # fmt: skip
def test_values_that_do_not_fit(given: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments([given])
    assert str(caught.value) == message


def test_values() -> None:
    arguments = parse_arguments(
        ["--verify-each=false", "--split-input-file", "--mlir-elide-elementsattrs-if-larger", "0x10", "a.mlir"]
    )
    assert (arguments.verify_each, arguments.split_input_file, arguments.elide_elements) == (False, "// -----", 16)
    assert arguments.input == "a.mlir"
    assert not parse_arguments(["--no-verify-each"]).verify_each and parse_arguments(["-verify-each=1"]).verify_each
