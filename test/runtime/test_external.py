"""External artifacts at run time: loaders, state, files."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mirlo.runtime.artifact import load as load_file
from mirlo.runtime.artifact import save
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.external import (
    ExternalArtifact,
    ExternalFunctions,
    LoadContext,
    load_externals,
    register_external_loader,
)
from mirlo.runtime.packed import CPackedFunction
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.thunks import bind_state

ARTIFACT = ExternalArtifact("test", ("f",), b"data", ("w",), {"scale": 2}, "t")


def _store() -> ParameterStore:
    store = ParameterStore()
    store.add("w", np.arange(3, dtype=np.float32))
    store.add("other", np.zeros(1, np.float32))
    return store


def test_a_loader_is_given_the_constants_asked_for_and_releases_once() -> None:
    seen: list[LoadContext] = []
    released: list[str] = []

    def loader(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
        seen.append(context)
        return ExternalFunctions({"f": lambda x, y: None}, release=lambda: released.append(artifact.target))

    register_external_loader("test", loader)
    loaded = load_externals([ARTIFACT], _store(), threads=3)
    assert list(seen[0].params) == ["w"] and seen[0].threads == 3
    assert list(loaded.functions) == ["t.f"]
    loaded.release()
    loaded.release()
    assert released == ["t"]


def test_what_was_loaded_is_released_when_a_later_loader_fails() -> None:
    released: list[str] = []
    register_external_loader(
        "test", lambda a, c: ExternalFunctions({"f": lambda: None}, release=lambda: released.append("t"))
    )

    def fail(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
        raise OSError("no device")

    register_external_loader("fails", fail)
    message = r"the loader 'fails' of what target 't' compiled: fail\(\) at .* raised OSError: no device"
    with pytest.raises(ArtifactError, match=message):
        load_externals([ARTIFACT, replace(ARTIFACT, format="fails")], _store(), 1)
    assert released == ["t"]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (None, r": <lambda>\(\) at .* returned None: expected ExternalFunctions"),
        (ExternalFunctions({"g": print}), " gave no function 'f'; it gave: g"),
        (ExternalFunctions({"f": 3}), " gave a int for the function 'f': expected a callable"),
    ],
)
def test_loaders_that_give_something_else(made: object, message: str) -> None:
    register_external_loader("test", lambda artifact, context: made)  # type: ignore[arg-type,return-value]
    with pytest.raises(ArtifactError, match=f"the loader 'test' of what target 't' compiled{message}"):
        load_externals([ARTIFACT], _store(), 1)


def test_a_loader_that_is_not_installed() -> None:
    with pytest.raises(ArtifactError, match="compiled for target 't', whose loader 'nobodys' is not installed"):
        load_externals([replace(ARTIFACT, format="nobodys")], _store(), 1)


def test_bind_state_hands_each_function_its_state() -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    calls = []

    @kind
    def function(state: int, tensors: int, count: int) -> int:
        calls.append((ctypes.c_int.from_address(state).value, tensors, count))
        return 7

    first, second = ctypes.c_int(1), ctypes.c_int(2)
    functions, keep = bind_state({"a": (function, first), "b": (function, ctypes.addressof(second))})
    assert isinstance(functions["a"], CPackedFunction)
    assert functions["a"](None, 5) == 7 and functions["b"](None, 6) == 7
    assert calls == [(1, None, 5), (2, None, 6)]
    assert keep is not None and bind_state({}) == ({}, None)


def test_files_hold_external_artifacts(artifact: object, tmp_path: Path) -> None:
    store = ParameterStore()
    store.add("w", np.arange(8, dtype=np.float32))
    store.add("k", np.ones(2, np.int8))
    externals = (replace(ARTIFACT, params=("k", "w")), ExternalArtifact("other", ("g", "h"), target="o"))
    whole = replace(artifact, externals=externals)  # type: ignore[type-var]
    save(tmp_path / "m.mlir", whole, store)
    read, params = load_file(tmp_path / "m.mlir")
    assert read == whole
    assert sorted(params.names()) == ["k", "w"]
    save(tmp_path / "n.mlir", artifact, store)  # type: ignore[arg-type]
    assert load_file(tmp_path / "n.mlir")[0] == artifact
    del whole
    gc.collect()


def test_a_parameter_that_is_missing(artifact: object, tmp_path: Path) -> None:
    store = ParameterStore()
    store.add("w", np.arange(8, dtype=np.float32))
    with pytest.raises(ArtifactError, match="target 't' compiled a part of the model that takes the parameter 'k'"):
        whole = replace(artifact, externals=(replace(ARTIFACT, params=("k",)),))  # type: ignore[type-var]
        save(tmp_path / "m.mlir", whole, store)
