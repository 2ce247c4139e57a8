"""`python -m benchmarks.function_imports [--all]`: the imports inside of functions, and the time that each saves.

Such an import is justified where a *door*, one of the ways in which a process starts to use Mirlo, loads its file and
not the module: the door does not pay for it. The doors are commands and their help, compilations for each target, a
cached model, a model from a file, the names of `mirlo`, each module of `mirlo.extend`, and the processes that Mirlo
starts; each is a process of its own here. The time that an import saves is what `python -X importtime` shows for the
module and all that it imports, without what its file imports anyway. The table has the imports that save nothing, with
`--all` the others too; the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.tools.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("dialects", "frontends", "passes", "targets", "runtime", "driver", "tools", "extend", "testing")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

COMMAND = "from mirlo.tools.cli import main\ntry: main({})\nexcept SystemExit: pass"
MODEL = """
func.func @main(%x: tensor<4x8xf32> {relax.name = "x"}) -> (tensor<4x8xf32> {relax.name = "y"}) {
  %y = "relax.softmax"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
"""
TARGETS = ("c", "nvvm", "spirv")
PROCESSES = (
    "mirlo.targets.llvm.processes", "mirlo.passes.byoc.isolate", "mirlo.tools.bench.child",
    "mirlo.runtime.bounded_process", "mirlo.runtime.image_process",
)  # fmt: skip
"""Modules that are programs of processes."""
LOADED = "\nimport sys\nwith open({!r}, 'w') as file: file.write(' '.join(sys.modules))"


@dataclass(frozen=True)
class FunctionImport:
    """An import inside of a function."""

    module: str
    """The module that has the function."""
    line: int
    imported: str


@dataclass
class Imports:
    """The imports of Mirlo's modules, as they are written."""

    root: Path = ROOT
    at_import: dict[str, set[str]] = field(default_factory=dict)
    """What each module imports when it is imported."""
    in_functions: list[FunctionImport] = field(default_factory=list)
    _loaded: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in self.paths.values():
            self._read(path)

    @cached_property
    def paths(self) -> dict[str, Path]:
        """Return the files by the names of their modules."""
        files = [*self.root.glob("*.py"), *(path for each in FOLDERS for path in (self.root / each).rglob("*.py"))]
        return {self._name(path): path for path in files if path.name != "setup.py"}

    def _name(self, path: Path) -> str:
        parts = ("mirlo", *path.relative_to(self.root).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _read(self, path: Path) -> None:
        module = self._name(path)
        names = self.at_import.setdefault(module, set())
        for node, is_inside in _run_time_imports(ast.parse(path.read_text(encoding="utf-8")), False):
            for name in self._names(node):
                if is_inside:
                    self.in_functions.append(FunctionImport(module, node.lineno, name))
                else:
                    names.add(name)

    def _names(self, node: ast.Import | ast.ImportFrom) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        members = [f"{node.module}.{alias.name}" for alias in node.names]
        return list(dict.fromkeys(each if each in self.paths else str(node.module) for each in members))

    def loaded_by(self, module: str) -> frozenset[str]:
        """Return the modules that are loaded once a module is imported, itself and packages around it too."""
        if module not in self._loaded:
            seen: set[str] = set()
            waiting = _with_parents(module)
            while waiting:
                name = waiting.pop()
                if name not in seen:
                    seen.add(name)
                    waiting += [each for imported in self.at_import.get(name, ()) for each in _with_parents(imported)]
            self._loaded[module] = frozenset(seen)
        return self._loaded[module]

    def added_by(self, each: FunctionImport) -> frozenset[str]:
        """Return the modules that an import inside of a function loads beyond those that its file imports."""
        return self.loaded_by(each.imported) - self.loaded_by(each.module)


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _run_time_imports(node: ast.AST, is_inside: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield the imports that run, and whether they are inside of a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            for other in child.orelse:
                yield from _run_time_imports(ast.Module([other], []), is_inside)
            continue
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, is_inside
        yield from _run_time_imports(child, is_inside or isinstance(child, FUNCTIONS))


def doors(folder: Path, commands: Sequence[str]) -> dict[str, str]:
    """Return the programs that start to use Mirlo, by their names; the model that they load is in the folder."""
    model, compiled = folder / "model.mlir", folder / "model.mirlo"
    network, compiled_network = folder / "network.onnx", folder / "network.mirlo"
    cached = f"import mirlo\nmirlo.compile({str(model)!r}, cache={str(folder / 'cache')!r})"
    extend = sorted(path.stem for path in (ROOT / "extend").glob("[a-z]*.py"))
    return {
        "import mirlo": "import mirlo",
        **{f"mirlo {name} --help": COMMAND.format([name, "--help"]) for name in ("", *commands)},
        **{
            f"mirlo {name} of a missing file": COMMAND.format([name, "missing.onnx"])
            for name in ("compile", "run", "info")
        },
        "mirlo compile": COMMAND.format(["compile", str(model), "-o", str(compiled), "--no-cache"]),
        "mirlo compile of a CNN": COMMAND.format(["compile", str(network), "-o", str(compiled_network), "--no-cache"]),
        **{
            f"mirlo compile for {target}": COMMAND.format(
                ["compile", str(network), "-o", str(folder / f"{target}.mirlo"), "--target", target, "--no-cache"]
            )
            for target in TARGETS
        },
        "mirlo.compile": cached,
        "mirlo.compile of a cached model": cached,
        "mirlo.load": f"import mirlo, numpy\nmirlo.load({str(compiled)!r})(numpy.ones((4, 8), 'f'))",
        "mirlo info": COMMAND.format(["info", str(compiled)]),
        "mirlo run": COMMAND.format(["run", str(compiled)]),
        "mirlo check": COMMAND.format(["check", str(network)]),
        "mirlo-opt": f"from mirlo.tools.opt import main\nmain([{str(model)!r}, '--simplify'])",
        **{module: f"import {module}" for module in PROCESSES},
        **{f"mirlo.{name}": f"from mirlo import {name}" for name in mirlo._LAZY},
        **{f"mirlo.extend.{name}": f"import mirlo.extend.{name}" for name in extend},
    }


def network() -> bytes:
    """Return a small CNN as a file of ONNX."""
    rng = np.random.default_rng(0)
    shapes = {"kernel": (8, 3, 3, 3), "bias": (8,), "matrix": (8, 5)}
    arrays = [numpy_helper.from_array(rng.random(shape, np.float32), name) for name, shape in shapes.items()]
    image, result = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 16, 16]), ("y", [1, 5]))
    )
    nodes = [
        helper.make_node("Conv", ["x", "kernel", "bias"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "matrix"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "network", [image], [result], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    content: bytes = model.SerializeToString()
    return content


def loaded_by_doors() -> dict[str, frozenset[str]]:
    """Return the modules that each door loads."""
    result = {}
    with tempfile.TemporaryDirectory() as name:
        folder, report = Path(name), Path(name, "modules")
        (folder / "model.mlir").write_text(MODEL, encoding="utf-8")
        (folder / "network.onnx").write_bytes(network())
        for door, program in doors(folder, list(COMMANDS)).items():
            code = program.replace("['', '--help']", "['--help']") + LOADED.format(str(report))
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=folder)
            result[door] = frozenset(report.read_text(encoding="utf-8").split())
    return result


def import_times(modules: Sequence[str]) -> dict[str, float]:
    """Return the milliseconds that the import of each module takes, without those that it imports."""
    # Statements, as the interpreter does not report what `importlib.import_module` imports.
    code = "".join(f"try: import {name}\nexcept ImportError: pass\n" for name in modules if "__main__" not in name)
    command = [sys.executable, "-X", "importtime", "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, check=True)
    lines = re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)$", done.stderr, re.MULTILINE)
    return {name: int(microseconds) / 1000 for microseconds, name in lines}


def saving_doors(added: frozenset[str], module: str, loaded: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the doors that load the module with the function, and not all that the import adds."""
    return [door for door, names in loaded.items() if module in names and not added <= names]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.function_imports", description=__doc__.split("\n\n")[1])
    parser.add_argument("--all", action="store_true", help="print the imports that save time, too")
    options = parser.parse_args(argv)
    imports, loaded = Imports(), loaded_by_doors()
    times = import_times(sorted({*imports.paths, *(each.imported for each in imports.in_functions)}))
    needless = 0
    print("| import | of | adds | saves, ms | doors that do not pay |\n| --- | --- | ---: | ---: | --- |")
    for each in imports.in_functions:
        added = imports.added_by(each)
        names = saving_doors(added, each.module, loaded)
        needless += not names
        if options.all or not names:
            place = f"{imports.paths[each.module].relative_to(ROOT)}:{each.line}"
            time = sum(times.get(name, 0.0) for name in added)
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            print(f"| {place} | {each.imported} | {len(added)} | {time:.1f} | {''.join(names[:1])}{others} |")
    print(f"\n{len(imports.in_functions)} imports inside of functions, {needless} of which no door does without")
    return 1 if needless else 0


if __name__ == "__main__":
    sys.exit(main())
