"""No pass has a list of operators: properties of an operator are declared in its class."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from commands import ROOT

from mirlo.dialects.relax import OPS
from mirlo.frontends.onnx.registry import CONVERTERS, load_converters
from mirlo.frontends.tensor import Tensor

FOLDERS = ("passes", "driver", "tools")
"""Where lists are forbidden. `dialects` defines operators; a target has rules for them by name."""
IMPORT = ROOT / "frontends/onnx"
"""Where lists of ONNX's operators are forbidden, but in `ops`, which registers their converters."""
MOST = 2
"""Operators that one literal may name: a rule for two is a rule, a table of three is a fact about operators."""
CLASSES = {cls.__name__ for cls in OPS.values()}
NAMES = {f"relax.{name}" for name in OPS} | {name for name in OPS if "_" in name}
PLAIN = set(OPS) - NAMES
"""Names such as `add` that are words as well: they count only where all elements of the literal are operators."""


def lists_of_operators(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each literal collection that names more than `MOST` operators."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Tuple() | ast.List() | ast.Set():
                elements: list[ast.expr] = node.elts
            case ast.Dict():
                elements = [key for key in node.keys if key is not None]
            case _:
                continue
        named = [element for element in elements if _names_operator(element)]
        words = [e for e in elements if isinstance(e, ast.Constant) and e.value in PLAIN]
        every = len(words) + len(named) == len(elements) or len(words) > 5
        if len(named) + (len(words) if every else 0) > MOST:
            yield node.lineno, ast.unparse(node)[:80]


def _names_operator(element: ast.expr) -> bool:
    match element:
        case ast.Constant(value=str() as text):
            return text in NAMES
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in CLASSES
    return False


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_lists_of_operators(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in lists_of_operators(path.read_text(encoding="utf-8"))
        if path.relative_to(ROOT).as_posix() not in SCALARS
    ]
    assert found == [], "declare a trait, or what else is meant, on the classes of the operators (dialects/core/traits)"


def test_no_lists_of_operators_of_onnx() -> None:
    load_converters()
    names = {operator for domain, operator in CONVERTERS.own_operators() if not domain}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:80]}"
        for path in sorted(IMPORT.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Tuple, ast.List, ast.Set))
        if len([e for e in node.elts if isinstance(e, ast.Constant) and e.value in names]) > MOST
    ]
    assert found == [], "declare a trait where the converter is registered (frontends/onnx/node.py)"


CONVERTERS_OF = (
    "frontends/onnx",
    "plugins/torch/mirlo_torch",
    "plugins/stablehlo/mirlo_stablehlo",
    "frontends/library",
)
"""Where an operator that has a symbol, a method or a function of tensors is written by it."""
CALLS = ("elementwise", "emit", "emit_all", "make")
SPELLED = {name for name in OPS if f'"{name}"' in (ROOT / "frontends/tensor.py").read_text(encoding="utf-8")}
METHODS = {name for name in OPS if hasattr(Tensor, name)}
"""Methods of other operators: `expand_dims` reshapes. Converters of these operators make them as they are."""
OF_THEMSELVES = ("frontends/onnx/ops/shape.py", "frontends/onnx/ops/dynamic_shapes.py", "frontends/onnx/ops/create.py")


def named_by_strings(text: str, names: Collection[str] = SPELLED | METHODS) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each call that names an operator by a string, though tensors have it."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(attr=called), args=[first, *_]) if called in CALLS:
                either = (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,)
                if any(isinstance(each, ast.Constant) and each.value in names for each in either):
                    yield node.lineno, ast.unparse(node)[:80]


@pytest.mark.parametrize("folder", CONVERTERS_OF)
def test_converters_read_as_mathematics(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in named_by_strings(
            path.read_text(encoding="utf-8"),
            SPELLED if path.relative_to(ROOT).as_posix() in OF_THEMSELVES else SPELLED | METHODS,
        )
    ]
    assert found == [], "write it by the symbol, the method or the function of frontends/tensor.py"


def test_what_is_named_by_a_string() -> None:
    assert {"add", "less", "exp", "where", "reshape", "reduce_sum", "matmul", "concat"} <= SPELLED
    found = 'op.emit("conv", x, w); x.elementwise("gelu"); x.elementwise("exp"); op.emit("reduce_sum", x, axes=[0])'
    assert [text for _, text in named_by_strings(found)] == [
        "x.elementwise('exp')",
        "op.emit('reduce_sum', x, axes=[0])",
    ]
    found = (
        'op.emit("silu" if a else "sigmoid", x); op.emit("squeeze", x, axes=[0]); op.emit("gelu" if a else "silu", x)'
    )
    assert [text for _, text in named_by_strings(found)] == [
        "op.emit('silu' if a else 'sigmoid', x)",
        "op.emit('squeeze', x, axes=[0])",
    ]


SCALARS = (
    "passes/exact/double.py", "passes/exact/translate_intrinsics.py", "tools/conformance/meanings.py",
)  # fmt: skip
"""Files whose words are those of intrinsics, not of operators."""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('VIEWS = ("relax.reshape", "relax.squeeze", "relax.expand_dims")', 1),
        ('COSTS = {"softmax": 5, "gelu": 8, "tanh": 4}', 1),
        ("heavy = {Conv, relax.matmul.Matmul, Attention}", 1),
        ('@legalize("relax.argmax", "relax.argmin")\ndef f(): pass', 0),
        ('PLAIN = ("x", "add", "y")', 0),
        ('PAIR = ("relax.conv", "relax.matmul")', 0),
    ],
)
def test_what_counts(text: str, count: int) -> None:
    assert len(list(lists_of_operators(text))) == count


def test_folders_exist() -> None:
    assert all(Path(ROOT, folder).is_dir() for folder in FOLDERS)
