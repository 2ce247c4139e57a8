"""What is reported of changes that tests notice or do not, and which tests belong to a folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import ROOT

from mirlo.benchmarks import mutation
from mirlo.benchmarks.mutants import FOLDERS, Mutant, find_mutants, with_hits
from mirlo.benchmarks.mutation import PLUGIN_TESTS, Verdict, plugin_test, reached_in, report


def _verdict(path: str, kind: str, reached_by: int, killed: str) -> Verdict:
    return Verdict(Mutant(path, kind, 3, 0, 3, 5, "x | y", "y | x", 3, 0), reached_by, killed, "test" if killed else "")


def test_survivors_are_counted_by_class_among_those_that_tests_reach() -> None:
    verdicts = [
        _verdict("passes/a.py", "constant", 4, "test"), _verdict("passes/b.py", "constant", 4, ""),
        _verdict("passes/c.py", "constant", 2, "nightly"), _verdict("driver/d.py", "branch", 0, ""),
        _verdict("driver/e.py", "branch", 1, "test"),
    ]  # fmt: skip
    lines = list(report(verdicts, ["driver", "passes"]))
    assert lines[2:5] == [
        "| driver | 2 | 1 | 1 | 0 | 1 | 100% |",
        "| passes | 3 | 3 | 1 | 1 | 1 | 33% |",
        "| all | 5 | 4 | 2 | 1 | 2 | 50% |",
    ]  # fmt: skip
    assert lines[6].startswith("`make test` kills 2 of 4 changes that a test reaches; 95 % interval")
    assert lines[8].startswith("`make test` kills 2 of 5 changes of all;")
    assert lines[10:] == [
        "| kind of change | folder | survived | of | for example |",
        "| --- | --- | ---: | ---: | --- |",
        r"| constant | passes | 2 | 3 | `passes/b.py:3`: `x \| y` as `y \| x` |",
    ]
    assert [line for line in report(verdicts, ["driver", "passes"], True) if line.endswith("SURVIVED")] == [
        "passes/b.py:3: constant: 'x | y' -> 'y | x': SURVIVED",
        "driver/d.py:3: branch: 'x | y' -> 'y | x': SURVIVED",
    ]


def test_packages_of_plugins_are_tested_by_their_own_tests() -> None:
    assert mutation.tests_of("plugins/systolic") == [PLUGIN_TESTS]
    assert mutation.tests_of("plugins/llm/mirlo_llm/serve") == ["plugins/llm/tests", PLUGIN_TESTS]
    assert plugin_test("plugins/systolic/mirlo_systolic/regions.py") == {
        f"{PLUGIN_TESTS}::test_its_own_tests_pass[systolic]"
    }
    assert plugin_test("passes/rules.py") == set()
    assert (ROOT / PLUGIN_TESTS).exists() and "plugins" in FOLDERS
    paths = {mutant.path for mutant in find_mutants(ROOT, ["plugins/systolic"])}
    assert paths and not any("tests" in Path(path).parts for path in paths)


def test_tests_that_are_named_as_a_file_are_tried_first() -> None:
    tests = [
        "test/driver/test_a.py::test_b", "test/runtime/test_cache.py::test_c", "test/passes/test_locks.py::test_d",
        "test/runtime/test_locks.py::test_e[1]",
    ]  # fmt: skip
    assert mutation.nearest_first("runtime/locks.py", tests) == [tests[3], tests[2], tests[1], tests[0]]
    assert mutation.nearest_first("dialects/core/dims.py", tests) == tests
    own = ["plugins/llm/tests/caches/test_a.py::test_b", "plugins/llm/tests/serve/test_tokens.py::test_c"]
    assert mutation.nearest_first("plugins/llm/mirlo_llm/serve/images.py", own) == own[::-1]
    assert mutation.nearest_first("dialects/core/dims.py", []) == []


def test_what_runs_at_imports_is_tried_with_the_files_of_its_folder() -> None:
    costs = {
        "test/runtime/test_locks.py": 5.0, "test/runtime/test_a.py": 2.0, "test/runtime/test_b.py": 60.0,
        "test/driver/test_locks.py": 1.0, "test/runtime/deep/test_c.py": 1.0,
    }  # fmt: skip
    named, other = "test/runtime/test_locks.py", "test/runtime/test_a.py"
    assert mutation.files_of("runtime/locks.py", costs, is_global=True) == [named, other]
    assert mutation.files_of("runtime/cache.py", costs, is_global=True) == [other, named]
    assert mutation.files_of("runtime/locks.py", costs, is_global=False) == [named]
    assert mutation.files_of("runtime/cache.py", costs, is_global=False) == []
    assert mutation.files_of("runtime/cache.py", {}, is_global=True) == []
    assert mutation.files_of("tools/x.py", costs, is_global=True) == []


def test_what_a_shared_fixture_reaches_is_reached_by_all_tests_of_its_file() -> None:
    tests = ["test/a.py::test_a", "test/a.py::test_b[x\ty]", "test/b.py::test_c", "test/b.py::test_d"]
    lines = [f"7\tsetup\t{tests[0]}", f"7\tcall\t{tests[2]}", f"8\tcall\t{tests[1]}", "8\t\t"]
    assert reached_in(lines, tests) == {7: {*tests[:3]}, 8: {tests[1], ""}}


def test_records_of_executions_bind_no_names() -> None:
    """`runtime/records.py` makes methods of functions whose local variables it renames."""
    text = "class A:\n    x = 1\n\ndef add(a, b):\n    if a == 1:\n        return b\n    return a + b\n"
    changes = [Mutant("a.py", "constant", line, 0, line, 1, "", "", line, 4, number=line) for line in (2, 5)]
    hits: list[int] = []
    recorder = SimpleNamespace(mutation_hits=SimpleNamespace(hit=hits.append))
    names: dict[str, Any] = {"__import__": lambda name: recorder}
    exec(with_hits(text, changes), names)
    assert names["add"](1, 2) == 2 and hits == [2, 5]
    assert names["add"].__code__.co_varnames == ("a", "b") and [*vars(names["A"])].count("hit") == 0


def test_packages_of_plugins_are_imported_from_the_copy(tmp_path: Path) -> None:
    """They are installed from their folders, apart from Mirlo: tests would not see what is changed in a copy."""
    names = [path for path in mutation.installed_plugins() if path in ("plugins/llm", "plugins/ranks")]
    source, tree = tmp_path / "source", tmp_path / "tree"
    for name in names:
        package = f"mirlo_{Path(name).name}"
        (source / name / package).mkdir(parents=True)
        (source / name / package / "__init__.py").write_text("")
        (source / "test_it.py").write_text(
            f"import {package}\ndef test_it(): assert {str(tree)!r} in {package}.__file__"
        )
        assert mutation.Tree(tree, source).run_tests(["test_it.py"], None) == ""


def test_names_and_messages_may_have_dashes() -> None:
    tests = {"test/a.py::test_a[n - 1]", "test/a.py::test_a[n"}
    for name in (*tests, "test/a.py::test_b"):
        for message in ("", " - ValueError: 3 - 4"):
            assert mutation.failed_test(name + message, tests) == name
    assert mutation.failed_test("test/a.py::test_a[n - 1] - x", ()) == "test/a.py::test_a[n"


def test_a_map_without_tests_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the tests cannot run with the records, no change would count as reached."""
    monkeypatch.setattr(mutation, "WORK", tmp_path)
    monkeypatch.setattr(mutation.Tree, "run_tests", lambda *arguments: "import")
    study = mutation.Study((), 1)
    study.source.mkdir(parents=True)
    study.source.joinpath("README.md").write_text("a file\n")
    with pytest.raises(SystemExit, match="no test ran"):
        mutation.make_map(study, [], 1)


def test_a_folder_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        mutation.main(["--folder", "passes/exact", "--folder", "passes/exakt", "--map"])
    assert "--folder passes/exakt: expected a folder or a file of " in capsys.readouterr().err


def test_what_is_named_otherwise_is_tested_by_its_tests() -> None:
    assert mutation.tests_of("passes/bounds") == ["test/passes/verify"]
    assert mutation.tests_of("targets/gpu") == ["test/targets/gpu", "test/targets/nvvm", "test/targets/spirv"]
    (change,) = find_mutants(ROOT, ["passes/bounds/kernel.py"])[:1]
    files = mutation.lit_files(change, ROOT, ())
    assert files and all(file.startswith("test/passes/verify/") for file in files)
    (change,) = find_mutants(ROOT, ["passes/memory"])[:1]
    assert all(file.startswith("test/passes/memory/") for file in mutation.lit_files(change, ROOT, ()))
