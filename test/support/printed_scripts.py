"""Operators and their prim functions as script, which is parsed again to verify that it is the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.frontends.script.tvm_operators import TVM_OPERATORS
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.testing.snapshots import checksum
from mirlo.tools.conformance.case import ANY, TABLE
from mirlo.tools.conformance.check import names as load_cases
from mirlo.tools.conformance.programs import module_of, operator_program

EVERY = 8
"""One operator in this many is legalized."""
SIGNATURE = ", ".join(
    f"{name}: R.Tensor({shape}, '{dtype}')"
    for name, shape, dtype in (
        ("x", (2, 8, 6, 6), "float32"), ("w", (4, 8, 3, 3), "float32"), ("a", (4, 6), "float32"),
        ("b", (6, 4), "float32"),
        ("c", (6,), "float32"), ("i", (4, 6), "int64"), ("m", (4, 6), "bool"), ("z", (2, 8, 6), "float32"),
        ("k", (4, 8, 3), "float32"),
    )
)  # fmt: skip
OPERANDS = (("x", "w", "c"), ("z", "k", "c"), ("a", "b", "c"), ("a", "c", "c"), ("a", "m", "a"))
REQUIRED = ("1", "(4, 6)", "0.5")
"""Arguments without a default that are no tensors."""
OPTIONAL = {
    "int": ("2", "-1"), "float": ("0.25",), "bool": ("True", "False"), "str": ("'float16'", "'NHWC'", "'none'"),
    "Sequence": ("(1, 2)", "[1]"), "tuple": ("(2, 1)", "(1, 1, 0, 1)"), "GraphTensor": ("c", "b"),
    "object": ("3", "(0, 1)"),
}  # fmt: skip
"""Arguments with a default, by a word of their type."""


def scripts() -> Iterator[str]:
    """Yield checksums of the scripts of each operator's graph, and of its legalized form."""
    load_cases()
    with make_context(), ir.Location.unknown():
        for number, operator in enumerate(sorted(name for name in TABLE.makers if "." not in name)):
            kinds = [kind for kind in ANY if TABLE.cases(operator, kind)]
            kind = kinds[number % len(kinds)]
            module, _ = module_of([operator_program(operator, TABLE.cases(operator, kind)[-1])])
            texts = [mirlo.script_of(module)]
            if number % EVERY == 0:
                Pipeline("legalize").run(module, Session(), verify_each=False)
                texts.append(mirlo.script_of(module))
            is_embedded = ", some as MLIR" if any("mlir(" in text for text in texts) else ""
            yield f"{operator} {kind}: {' '.join(map(checksum, texts))}{is_embedded}"


def tvm_calls() -> Iterator[str]:
    """Yield what calls of TVM's operators become, with arguments of all forms in turns, or why they are refused."""
    with make_context() as context:
        for name, function in sorted(TVM_OPERATORS.items()):
            _, *parameters = inspect.signature(function).parameters.values()
            sums = [_parsed(name, arguments, context) for arguments in _argument_lists(parameters)]
            yield f"{name}: {' '.join(sums)}"


def _argument_lists(parameters: Sequence[inspect.Parameter]) -> Iterator[str]:
    """Yield arguments: required ones of each form, then each optional one with values of its type."""
    required = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_POSITIONAL]
    tensors = [each for each in required if "GraphTensor" in str(each.annotation)]
    others = [each for each in required if each not in tensors]
    for operands in OPERANDS:
        given = [_operand(each, operands[i % len(operands)]) for i, each in enumerate(tensors)]
        for number in range(len(REQUIRED) if others else 1):
            choices = [REQUIRED[(number + i) % len(REQUIRED)] for i in range(len(others))]
            yield ", ".join([*given, *(f"{each.name}={value}" for each, value in zip(others, choices, strict=True))])
    operands = OPERANDS[0]
    given = [_operand(each, operands[i % len(operands)]) for i, each in enumerate(tensors)]
    given += [f"{each.name}={REQUIRED[0]}" for each in others]
    for optional in (each for each in parameters if each not in required):
        for kind, values in OPTIONAL.items():
            if kind in str(optional.annotation):
                yield from (", ".join([*given, f"{optional.name}={value}"]) for value in values)


def _operand(parameter: inspect.Parameter, operand: str) -> str:
    """Return a tensor as an argument, or two of it."""
    return f"{parameter.name}={f'[{operand}, {operand}]' if 'Sequence' in str(parameter.annotation) else operand}"


def _parsed(name: str, arguments: str, context: ir.Context) -> str:
    """Return a checksum of what a call becomes, or of its error."""
    call = f"{name.replace('_', '.', 1) if name.startswith(('nn_', 'image_')) else name}({arguments})"
    header = "from tvm.script import relax as R\n\n\n@R.function\n"
    try:
        return checksum(
            mirlo.parse_script(f"{header}def main({SIGNATURE}):\n    y = R.{call}\n    return y\n", context=context)
        )
    except mirlo.MirloError as error:
        return f"refused {checksum(error)}"


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {
    "frontends/script/scripts.txt": scripts,
    "frontends/script/tvm_calls.txt": tvm_calls,
}
"""The tables, below `test`."""
