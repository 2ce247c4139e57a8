"""The shape of the code: what may import what, how large files get, what a start costs."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from tokenize import COMMENT, ENCODING, NEWLINE, NL, STRING, tokenize

import pytest
from commands import ROOT, output_of, python
from parsed_package import house

from mirlo.benchmarks.function_imports import Imports
from mirlo.benchmarks.house import DISPATCH, House, import_cycles
from mirlo.runtime.sources import CODE_FOLDERS
from mirlo.tools.samples import path as sample

SHIPPED = (
    "dialects",
    "frontends",
    "passes",
    "targets",
    "runtime",
    "driver",
    "tools",
    "extend",
    "testing",
)
MAX_LINES = 800

# What `passes/targets.py` names in the types of a target.
TYPES_OF_TARGETS = ("runtime.artifact", "runtime.cache")

# The table of docs/architecture.md: what each folder may import besides itself.
ALLOWED: dict[str, tuple[str, ...]] = {
    "dialects": ("runtime.callbacks", "runtime.entry_points", "runtime.processes", "runtime.records", "runtime.system"),
    "frontends": (
        "dialects",
        "runtime.callbacks",
        "runtime.params",
        "runtime.errors",
        "runtime.dtypes",
        "runtime.files",
        "runtime.kinds",
        "runtime.host_cpu",
        "runtime.entry_points",
        "runtime.known_packages",
        "runtime.records",
        "runtime.names",
        "runtime.regex",
        "runtime.system",
    ),
    "passes": (
        "dialects",
        "runtime.callbacks",
        "runtime.fresh_process",
        "runtime.params",
        "runtime.container",
        "runtime.errors",
        "runtime.dtypes",
        "runtime.interpreter",
        "runtime.external",
        "runtime.native",
        "runtime.files",
        "runtime.entry_points",
        "runtime.executable",
        "runtime.host_cpu",
        "runtime.object_loader",
        "runtime.known_packages",
        "runtime.processes",
        "runtime.records",
        "runtime.names",
        "runtime.sources",
        "runtime.system",
        *TYPES_OF_TARGETS,
    ),
    "targets": ("dialects", "passes", "runtime"),
    "runtime": (),
    "driver": ("dialects", "frontends", "passes", "runtime"),
    "tools": ("dialects", "frontends", "passes", "targets", "runtime", "driver"),
    "extend": ("dialects", "frontends", "passes", "targets", "runtime", "driver", "tools"),
    "testing": ("dialects", "frontends", "passes", "targets", "runtime", "driver", "tools"),
}

FILES = sorted(path for folder in SHIPPED for path in (ROOT / folder).rglob("*.py"))
TESTED = [*FILES, *sorted((ROOT / "test").rglob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]


def _module_of(path: Path) -> str:
    parts = ("mirlo", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PACKAGES = {".".join(("mirlo", *path.parent.relative_to(ROOT).parts)) for path in FILES}


@cache
def _parsed(path: Path) -> ast.Module:
    return house().trees.get(path) or ast.parse(path.read_text(encoding="utf-8"))


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those inside others included, without going through expressions."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, name, ()):
            if isinstance(inner, ast.stmt):
                yield inner
            yield from _statements(inner)


def _has_docstring(path: Path) -> bool:
    """Return whether the first token that is no comment is a string."""
    with path.open("rb") as file:
        tokens = tokenize(file.readline)
        first = next(token for token in tokens if token.type not in (ENCODING, COMMENT, NL, NEWLINE))
    return first.type == STRING


@cache
def _names(path: Path) -> list[tuple[int, str]]:
    """Line and full name of each import, those inside functions included."""
    found: list[tuple[int, str]] = []
    for node in _statements(_parsed(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


@pytest.mark.sample(1)
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


def test_dataclasses_are_declared_without_generated_text() -> None:
    naming = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in FILES
        if path != ROOT / "runtime" / "records.py"
        for line, name in _names(path)
        if name == "dataclasses.dataclass"
    ]
    assert not naming, "import `dataclass` from mirlo.runtime.records"


def test_passes_name_no_target() -> None:
    naming = [str(p.relative_to(ROOT)) for p in (ROOT / "passes").rglob("*.py") if "mirlo.targets." in p.read_text()]
    assert not naming


# Targets for GPUs and what they share with target `llvm`, and whose folders they may not look into.
APART = {
    "gpu": ("llvm", "nvvm", "spirv"),
    "host": ("gpu", "llvm", "nvvm", "spirv"),
    "nvvm": ("llvm", "spirv"),
    "spirv": ("llvm", "nvvm"),
}


def test_files_that_targets_share_import_no_target() -> None:
    shared = [path for path in (ROOT / "targets").glob("*.py") if path.name != "__init__.py"]
    assert shared
    assert not [(str(p), line) for p in shared for line, name in _names(p) if name.startswith("mirlo.targets.")]


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


def test_functions_import_what_their_file_does_not_load() -> None:
    """An import in a function saves start-up time, or it is at the top: `python -m benchmarks.function_imports`."""
    imports = Imports()
    needless = [
        f"{imports.paths[each.module].relative_to(ROOT)}:{each.line}: {each.imported}"
        for each in imports.in_functions
        if not imports.added_by(each)
    ]
    assert not needless, "what the file imports loads these anyway: import them at the top"


def test_an_import_in_a_function_that_saves_nothing_is_found(tmp_path: Path) -> None:
    texts = {"__init__.py": "", "dialects/__init__.py": "", "dialects/b.py": "import mirlo.dialects.c\n"}
    texts["dialects/a.py"] = "import mirlo.dialects.b\ndef f():\n    from mirlo.dialects import c, d\n"
    for name, text in {**texts, "dialects/c.py": "", "dialects/d.py": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    imports = Imports(tmp_path)
    added = {each.imported: imports.added_by(each) for each in imports.in_functions}
    assert added == {"mirlo.dialects.c": frozenset(), "mirlo.dialects.d": {"mirlo.dialects.d"}}


def test_cycles_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": set(), "f": {"g"}, "g": {"f", "a"}}
    assert sorted(import_cycles(imports)) == [["a", "b", "c"], ["f", "g"]]


def test_files_import_each_other_in_no_cycle() -> None:
    """Each file can be read after those that it imports, wherever and however it does."""
    assert not import_cycles(house().imports)


@pytest.mark.parametrize(
    "text",
    [
        "import mirlo.b",
        "from mirlo import b",
        "def f():\n    from mirlo.b import g",
        "import importlib\ndef f():\n    importlib.import_module('mirlo.b')",
        "LAZY = {'g': 'mirlo.b'}",
        "LAZY = {'g': 'mirlo.b:g'}",
        "from mirlo.core.installed import import_modules\nimport_modules('mirlo')",
    ],
)
def test_imports_are_seen_however_they_are_written(tmp_path: Path, text: str) -> None:
    """Also where a module is named by a text, for `import_module` or a lazy table."""
    (tmp_path / "__init__.py").touch()
    for folder, content in {"a": text, "b": "g = 1"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(content)
    assert "mirlo.b" in House(tmp_path).imports["mirlo.a"]


def test_what_compiles_a_kernel_is_in_the_key_of_its_code() -> None:
    """All that the code generator of target `llvm` imports is in the folders whose sources its keys contain."""
    reached: set[str] = set()
    waiting = ["mirlo.targets.llvm.units", "mirlo.targets.llvm.processes"]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += house().imports[module]
    assert len(reached) > 100
    assert {module.split(".")[1] for module in reached} <= set(CODE_FOLDERS)


def test_files_that_name_modules_of_their_input_exist() -> None:
    assert all((ROOT / name).is_file() for name in DISPATCH)


def _defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that statements of a module define, those of imports and branches included."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((alias.asname or alias.name).partition(".")[0] for alias in aliases)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.If() | ast.Try() | ast.With() | ast.For():
                yield from _defined(_statements(node))


def test_names_that_tests_import_exist() -> None:
    """Type checkers do not read tests: a name that is gone would end the collection of all."""
    defined = {_module_of(path): {*_defined(_parsed(path).body)} for path in FILES}
    wrong = []
    for path in [*sorted((ROOT / "test").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))]:
        text = path.read_text(encoding="utf-8")
        for module, names in re.findall(r"^from (mirlo[\w.]*) import (\([^)]*\)|[^\n(]+)$", text, re.MULTILINE):
            listed = re.findall(r"(\w+)(?: as \w+)?\s*(?:,|$)", re.sub(r"#.*|[()]", "", names), re.MULTILINE)
            known = defined.get(module)
            if known is None or "__getattr__" in known:
                continue
            absent = (
                name for name in listed if name not in known and f"{module}.{name}" not in PACKAGES | defined.keys()
            )
            wrong += [f"{path.relative_to(ROOT)}: {module}.{name}" for name in absent]
    assert not wrong


def test_files_are_short() -> None:
    """A warning only: a split that makes two files import each other is worse than a long file."""
    long = {str(p.relative_to(ROOT)): n for p in TESTED if (n := len(p.read_text().splitlines())) > MAX_LINES}
    if long:
        warnings.warn(f"files of more than {MAX_LINES} lines: {long}", stacklevel=1)


def test_modules_say_what_they_are() -> None:
    silent = [str(p.relative_to(ROOT)) for p in TESTED if p.stat().st_size and not _has_docstring(p)]
    assert not silent


# What a command must not import to start: these are what makes it slow.
SLOW = ("numpy", "onnx", "torch_mlir", "mlir", "llvmlite", "ml_dtypes", "onnxruntime")


# Modules of the standard library that take milliseconds to import and that parsing a command line does not need.
SLOW_STANDARD = ("dataclasses", "hashlib", "inspect", "json", "multiprocessing", "shlex", "subprocess", "tempfile")


def _imported(code: str, modules: tuple[str, ...] = SLOW) -> set[str]:
    """Return which of the modules a program imports."""
    report = "import sys; print(*sys.modules)"
    found = output_of(python("-c", f"{code}\n{report}")).splitlines()[-1].split()
    return set(modules).intersection(found)


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


DECLARATIONS = {"dataclasses", "inspect"}
"""What the declarations of compilation options import, from which commands take flags: 8 ms."""


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ((), set()),
        (("--help",), set()),
        (("cache", "--help"), set()),
        (("run", "--help"), DECLARATIONS),
        (("fuzz", "--help"), DECLARATIONS),
        (("bench", "--help"), DECLARATIONS),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_start_imports_little_of_the_standard_library(arguments: tuple[str, ...], allowed: set[str]) -> None:
    code = f"from mirlo.tools.cli import main\ntry:\n  main({list(arguments)})\nexcept SystemExit: pass"
    # To write help in colors, argparse of Python 3.14 imports some of them.
    help_alone = "import argparse\nargparse.ArgumentParser().print_help()"
    assert _imported(code, SLOW_STANDARD) - _imported(help_alone, SLOW_STANDARD) <= allowed


MODULES_OF_A_COMPILATION = 400
"""Most modules of Mirlo that `mirlo compile` of MobileNetV2 loads: each takes a third of a millisecond."""


def test_a_compilation_loads_few_modules(tmp_path: Path) -> None:
    """Modules that a CNN does not need are imported where they are used; small ones with one user are part of it."""
    arguments = ["compile", str(sample("mobilenetv2")), "-o", "m.mirlo", "--no-cache"]
    code = f"from mirlo.tools.cli import main\nmain({arguments})"
    report = "import sys; print(*(name for name in sys.modules if name.partition('.')[0] == 'mirlo'))"
    loaded = output_of(python("-c", f"{code}\n{report}", cwd=tmp_path)).splitlines()[-1].split()
    assert 100 < len(loaded) <= MODULES_OF_A_COMPILATION


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
