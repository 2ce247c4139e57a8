"""Import of a TOSA program: one function `@main` of relax operators."""

from __future__ import annotations

from functools import partial

import numpy as np

from mirlo.extend.frontend import Interface, ParameterStore, import_program, ir, make_context, parsing
from mirlo_tflite.body import TosaImport
from mirlo_tflite.errors import TosaImportError
from mirlo_tflite.registry import CONVERTERS
from mirlo_tflite.states import find_states


def import_tosa(content: bytes | str, name: str = "program") -> tuple[ir.Module, ParameterStore]:
    """Import a program in MLIR, as text or bytecode; `name` is for errors.

    Raises `TosaImportError`, which names the operation that is not supported. Variables that a program writes are
    inputs and outputs of their names.
    """
    CONVERTERS.load()
    with make_context(), ir.Location.file(name, 0, 0):
        source = parse(content, name)
        start = partial(TosaImport, held=find_states(source, name))
        return import_program(source, name, Interface(), start)


def initial_states(content: bytes | str, name: str = "program") -> dict[str, np.ndarray]:
    """Return the initial values of a program's variables, which are inputs of the compiled model."""
    with make_context(), ir.Location.file(name, 0, 0):
        states = find_states(parse(content, name), name)
    return {symbol: state.first_value() for symbol, state in states.items() if state.is_written}


def parse(content: bytes | str, name: str) -> ir.Module:
    """Parse a module in the current context; `name` is for errors."""
    with parsing(f"{name} is not valid TOSA", TosaImportError):
        return ir.Module.parse(content)
