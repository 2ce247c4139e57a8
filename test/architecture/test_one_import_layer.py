"""Front ends share one tensor, one builder of regions and one arithmetic on sizes; none reads through another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ROOT

from mirlo.dialects.relax import OPS

FRONTENDS = ROOT / "frontends"
FOLDERS = ("onnx", "mlir", "library")
"""All but `script`, which reads a form of the program itself: its regions are those that are written there."""
FILES = sorted([*FRONTENDS.glob("*.py"), *(path for folder in FOLDERS for path in (FRONTENDS / folder).rglob("*.py"))])
ARITHMETIC = {"__add__", "__mul__", "__truediv__", "__floordiv__", "__mod__"}
NUMBERS = {"Tensor": "tensor.py", "Complex": "library/complex_numbers.py", "DimFraction": "sizes.py"}
"""Classes with arithmetic, and where they are: a complex number is two tensors, a fraction is two dims."""
REGIONS = {"IfOp", "WhileOp", "ForOp", "YieldOp", "ConditionOp", "append_to"}
LOOPS = {"scf.if", "scf.while", "scf.for"}
DIMS = {"floordiv", "mod", "ceildiv", "min", "max"}


def classes_with_arithmetic(tree: ast.Module) -> Iterator[str]:
    """Yield the names of classes whose instances are added or multiplied by operators."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bound = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
            bound |= {
                target.id
                for each in node.body
                if isinstance(each, ast.Assign)
                for target in each.targets
                if isinstance(target, ast.Name)
            }
            if bound & ARITHMETIC:
                yield node.name


def makers_of_regions(tree: ast.Module) -> Iterator[str]:
    """Yield the operations with regions that a file makes."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if name in REGIONS:
                yield name
            case ast.Call(args=[ast.Constant(value=str() as name), *_]) if name in LOOPS:
                yield name


def sizes_by_strings(tree: ast.Module) -> Iterator[str]:
    """Yield calls that name arithmetic on dims by a string."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="apply"), args=[ast.Constant(value=str() as name), *_]):
                if name in DIMS:
                    yield ast.unparse(node)


def restated_names(tree: ast.Module) -> Iterator[str]:
    """Yield entries of tables that map a name of a front end to the operator whose class states it."""
    stated = {(cls.ONNX.operator.lower(), name) for name, cls in OPS.items() if cls.ONNX is not None}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            first = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
            match key, first:
                case ast.Constant(value=str() as other), ast.Constant(value=str() as relax):
                    if other != relax and (other.lower(), relax) in stated:
                        yield f"{other}: {relax}"


def imports_of(tree: ast.Module) -> set[str]:
    """Return the modules that a file imports anywhere."""
    return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module} | {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Parse the files of the front ends, by path."""
    return {path.relative_to(FRONTENDS).as_posix(): parsed(path) for path in FILES}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_there_is_one_tensor(trees: dict[str, ast.Module]) -> None:
    found = {name: path for path, tree in trees.items() for name in classes_with_arithmetic(tree)}
    assert found == NUMBERS, "values of a program are `Tensor`s of frontends/tensor.py"


def test_one_file_makes_regions(trees: dict[str, ast.Module]) -> None:
    found = {path for path, tree in trees.items() if next(makers_of_regions(tree), None)}
    assert found == {"builder.py"}, "branches and loops are made by `GraphBuilder`"


def test_sizes_are_computed_by_operators(trees: dict[str, ast.Module]) -> None:
    found = {path: list(sizes_by_strings(tree)) for path, tree in trees.items()}
    assert {path: calls for path, calls in found.items() if calls} == {}, "write `//` and `%`"


def test_names_stand_on_the_classes_alone(trees: dict[str, ast.Module]) -> None:
    found = {path: list(restated_names(tree)) for path, tree in trees.items()}
    assert {path: names for path, names in found.items() if names} == {}, "ask the class: `relax_class`"


def test_front_ends_do_not_import_each_other(trees: dict[str, ast.Module]) -> None:
    other = {"onnx": "mirlo.frontends.mlir", "mlir": "mirlo.frontends.onnx", "library": "mirlo.frontends.onnx"}
    found = {
        path
        for path, tree in trees.items()
        for name in imports_of(tree)
        if f"{name}.".startswith(f"{other.get(path.split('/')[0], 'none')}.")
    }
    assert found == set()


def test_the_library_has_what_several_front_ends_need(trees: dict[str, ast.Module]) -> None:
    """Packages count: they import it by `mirlo.extend.library`."""
    packages = {path.relative_to(ROOT / "plugins").as_posix(): parsed(path)
                for path in (ROOT / "plugins").glob("*/mirlo_*/**/*.py")}  # fmt: skip
    users: dict[str, set[str]] = {}
    for path, tree in {**trees, **packages}.items():
        for used in library_modules(tree):
            users.setdefault(used, set()).add(path)
    found = {path for path in trees if path.startswith("library/") and not path.endswith("__init__.py")}
    alone = {path for path in found if len(front_ends_of(path.removeprefix("library/")[:-3], users)) < 2}
    assert alone == set(), "what one front end has stands there"


def library_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of the library that a file imports."""
    package = "mirlo.frontends.library"
    public = parsed(ROOT / "extend" / "library.py")
    offered = {alias.asname or alias.name: node.module for node in ast.walk(public) if isinstance(node, ast.ImportFrom)
               and (node.module or "").startswith(package) for alias in node.names}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "mirlo.extend.library":
            yield from {str(offered[alias.name]).rpartition(".")[2] for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module == package:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{package}."):
            yield node.module.rpartition(".")[2]


def front_ends_of(module: str, users: dict[str, set[str]]) -> set[str]:
    """Return the folders whose files use a module of the library, or objects made with it."""
    found = set()
    for path in users.get(module, ()):
        folder, _, name = path.partition("/")
        found |= front_ends_of(name[:-3], users) if folder == "library" else {folder}
    return found


def test_pytorch_is_not_exported_to_onnx() -> None:
    calls = {
        path
        for path in (ROOT / "plugins" / "torch" / "mirlo_torch").rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.onnx.export"
    }
    assert calls == set()


def test_what_is_forbidden_is_found() -> None:
    value = ast.parse("class Value:\n    def __mul__(self, other): ...\nclass Names:\n    def get(self): ...")
    assert list(classes_with_arithmetic(value)) == ["Value"]
    assert list(classes_with_arithmetic(ast.parse("class V:\n    __add__ = _binary(add)"))) == ["V"]
    regions = ast.parse("scf.IfOp(flag)\nir.Operation.create('scf.while')\nop.emit('scf_if')")
    assert sorted(makers_of_regions(regions)) == ["IfOp", "scf.while"]
    sizes = ast.parse("D.apply('mod', a, b); D.maximum(a, b); apply(op, 'mod')")
    assert list(sizes_by_strings(sizes)) == ["D.apply('mod', a, b)"]
    tables = ast.parse("A = {'ReduceSum': 'reduce_sum', 'Relu': ('relu', 1), 'sum': 'add', 'add': 'add'}")
    assert list(restated_names(tables)) == ["ReduceSum: reduce_sum", "Relu: relu"]
    assert imports_of(ast.parse("import a.b\ndef f():\n    from c import d")) == {"a.b", "c"}
