"""Calls of functions of users in front ends: converters, deferred modules and parameters, parsers."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo
import mirlo.extend
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.frontend import (
    DeferredModule,
    FrontendError,
    Interface,
    ParameterStore,
    convert_by,
    import_program,
    parsing,
)
from mirlo.extend.ops import converter as onnx_converter
from mirlo.frontends import foreign


def node_of_own_domain() -> Any:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Odd", ["x"], ["y"], domain="own")], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def of_infer(made: Callable[[], Any]) -> None:
    mirlo.onnx_operator("own", "Odd", packed="own.odd", infer=lambda x: made())
    mirlo.compile(node_of_own_domain(), cache=False)


def of_converter(made: Callable[[], Any]) -> None:
    onnx_converter("Odd", domain="own")(lambda node: made())
    mirlo.compile(node_of_own_domain(), cache=False)


def of_front_end(made: Callable[[], Any]) -> None:
    class Model:
        pass

    frontend = types.SimpleNamespace(convert=lambda model, example: made())
    entry = types.SimpleNamespace(name=Model.__module__.partition(".")[0], load=lambda: frontend)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreign, "offered", lambda group: [entry] if group == foreign.GROUP else [])
        mirlo.compile(Model(), cache=False)


def of_deferred_module(made: Callable[[], Any]) -> None:
    _ = DeferredModule(lambda: made(), lambda: "digest").module


def of_deferred_digest(made: Callable[[], Any]) -> None:
    _ = DeferredModule(lambda: None, lambda: made()).digest  # type: ignore[arg-type, return-value] # not made


def of_parameter(made: Callable[[], Any]) -> None:
    store = ParameterStore()
    store.get(store.add_deferred("w", "f32", [4], lambda: made()))


def of_columns(made: Callable[[], Any]) -> None:
    store = ParameterStore()
    name = store.add_deferred("w", "f32", [4], lambda: np.zeros(4, np.float32), columns=lambda width: made())
    reader = store.column_reader(name)
    assert reader is not None
    list(reader(2))


def of_program_import(made: Callable[[], Any]) -> None:
    with make_context(), ir.Location.unknown():
        import_program(ir.Module.create(), "callbacks", Interface(), lambda name, store, functions: made())


def of_explained_parsing(made: Callable[[], Any]) -> None:
    with make_context(), parsing("callbacks", FrontendError, lambda text: made()):
        ir.Module.parse("not a module")


def of_stablehlo_like_converter(made: Callable[[], Any]) -> None:
    convert_by(lambda op: made(), types.SimpleNamespace())  # type: ignore[arg-type] # the converter reads nothing


KINDS: dict[Callable[..., None], set[str]] = {
    of_infer: set(),
    of_converter: {"NotImplemented", "list of None"},
    of_front_end: set(),
    of_deferred_module: set(),
    of_deferred_digest: {"text"},
    of_parameter: set(),
    of_columns: set(),
    of_program_import: set(),
    of_explained_parsing: {"text", "empty text"},
    of_stablehlo_like_converter: {"list", "tuple"},
}
"""The functions that call a callback, each with the names of values that are valid results or other errors."""
