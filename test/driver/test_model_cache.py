"""Whole models in the cache: keys, damaged entries, and models that are not stored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import mirlo, output_of, python
from onnx import TensorProto, helper, numpy_helper
from vanishing import interrupted

import mirlo as package
from mirlo.driver import build as building
from mirlo.driver import model_cache
from mirlo.driver.compiler import Compiler
from mirlo.driver.model_cache import CacheKey, Uncacheable, cache_key, open_cache
from mirlo.passes.targets import declared_target
from mirlo.runtime.cache import MANIFESTS, MODELS, Cache, default_folder
from mirlo.runtime.errors import NotForThisMachine
from mirlo.runtime.executable import Executable
from mirlo.runtime.sources import MODEL_FOLDERS
from mirlo.runtime.unloaded import UnloadedModel

LLVM = declared_target("llvm")
MODULES = 75
"""Most modules of Mirlo for a model that the cache has."""


def _write(folder: Path, scale: float = 1.0, external: bool = False) -> Path:
    weight = (np.arange(32 * 48, dtype=np.float32).reshape(32, 48) / 100 - 7) * np.float32(scale)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 48])], [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = folder / "m.onnx"
    where = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0} if external else {}
    (folder / "w.bin").unlink(missing_ok=True)
    onnx.save(model, path, **where)
    return path


@pytest.fixture
def keep_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep small models too, in a process whose tests have extended the compiler."""
    monkeypatch.setattr(building, "MIN_COMPILE_SECONDS", 0.0)
    monkeypatch.setattr(model_cache, "extended", lambda target: None)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch):
    def forbid() -> None:
        def called(*arguments: object) -> None:
            raise AssertionError("the model was compiled")

        monkeypatch.setattr(Compiler, "run", called)

    return forbid


def _compile(path: Path, cache: Cache | Path, rows: int = 4, **options: object):
    return package.compile(path, cache=cache, shapes={"x": [rows, 32]}, **options)


def test_the_option_names_a_cache(tmp_path: Path) -> None:
    for value, folder in ((True, default_folder()), (tmp_path, tmp_path), (str(tmp_path), tmp_path)):
        cache = open_cache(value)
        assert cache is not None and cache.folder == folder
    own = Cache(tmp_path)
    assert open_cache(own) is own and open_cache(False) is None


@pytest.mark.usefixtures("keep_all")
@pytest.mark.parametrize("external", [False, True])
def test_the_second_time_nothing_is_compiled(tmp_path: Path, no_compiler, external: bool) -> None:
    path = _write(tmp_path, external=external)
    first = _compile(path, tmp_path / "cache")
    no_compiler()
    second = _compile(path, tmp_path / "cache")
    x = np.random.default_rng(0).standard_normal((4, 32), dtype=np.float32)
    assert np.array_equal(first(x), second(x))
    assert second.artifact == first.artifact


@pytest.mark.usefixtures("keep_all")
def test_programs_are_kept(tmp_path: Path, no_compiler) -> None:
    """Models of strings, which are programs of host functions and parts."""
    values = [helper.make_tensor_value_info(name, TensorProto.STRING, ["n"]) for name in ("x", "y")]
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["u"], case_change_action="UPPER"),
        helper.make_node("LabelEncoder", ["u"], ["k"], domain="ai.onnx.ml", keys_strings=["A", "B"],
                         values_int64s=[1, 2], default_int64=7),
        helper.make_node("Mul", ["k", "two"], ["l"]),
        helper.make_node("LabelEncoder", ["l"], ["y"], domain="ai.onnx.ml", keys_int64s=[2, 4],
                         values_strings=["one", "two"], default_string="none"),
    ]  # fmt: skip
    two = numpy_helper.from_array(np.array(2), "two")
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [two])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    path = tmp_path / "strings.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    words = np.array(["a", "b", "c"], object)
    first = package.compile(path, cache=tmp_path / "cache")
    assert type(first).__name__ == "Program"
    no_compiler()
    second = package.compile(path, cache=tmp_path / "cache")
    for model in (first, second):
        assert list(np.asarray(model(words)).ravel()) == ["one", "two", "none"]


@pytest.mark.usefixtures("keep_all")
def test_a_model_that_is_too_large_is_named(tmp_path: Path, keep_all: None, capfd: pytest.CaptureFixture[str]) -> None:
    """The warning has the limit with which the model is kept."""
    path, folder = _write(tmp_path), tmp_path / "cache"
    cache = Cache(folder)
    cache.set_limit(1000)
    _compile(path, cache)
    warning = capfd.readouterr().err
    assert "the compiled model was not kept in the cache: it takes" in warning
    assert not any(entry.kind in (MODELS, MANIFESTS) for entry in cache.entries())
    cache.set_limit(int(warning.rpartition("mirlo cache limit ")[2].split("MiB")[0]) << 20)
    _compile(path, cache)
    assert "not kept" not in capfd.readouterr().err
    assert {entry.kind for entry in cache.entries()} >= {MODELS, MANIFESTS}


@pytest.mark.parametrize("external", [False, True])
def test_other_weights_are_another_model(tmp_path: Path, external: bool) -> None:
    x = np.random.default_rng(0).standard_normal((4, 32), dtype=np.float32)
    # Called before the file is written anew: its weights are mapped.
    before = _compile(_write(tmp_path, 1.0, external), tmp_path / "cache")(x)
    after = _compile(_write(tmp_path, 2.0, external), tmp_path / "cache")(x)
    np.testing.assert_allclose(after, 2 * before, rtol=1e-5)


@pytest.mark.usefixtures("keep_all")
def test_a_lost_file_of_weights_is_the_usual_error(tmp_path: Path) -> None:
    path = _write(tmp_path, external=True)
    _compile(path, tmp_path / "cache")
    (tmp_path / "w.bin").unlink()
    with pytest.raises(package.MirloError, match=r"w\.bin.*does not exist"):
        _compile(path, tmp_path / "cache")


@pytest.mark.usefixtures("keep_all")
@pytest.mark.parametrize(
    "options", [{"rows": 5}, {"opt_level": 3}, {"threads": 2}, {"strategies": {"relax.matmul": "default"}}]
)
def test_other_options_are_another_question(tmp_path: Path, no_compiler, options: dict) -> None:
    path = _write(tmp_path)
    _compile(path, tmp_path / "cache")
    no_compiler()
    with pytest.raises(AssertionError, match="was compiled"):
        _compile(path, tmp_path / "cache", **options)


@pytest.mark.sample(2)
@pytest.mark.usefixtures("keep_all")
@pytest.mark.parametrize("kind", [MODELS, MANIFESTS])
@pytest.mark.parametrize("where", [0.0, 0.5, 0.999])
def test_damage_is_found_and_mended(tmp_path: Path, no_compiler, kind: str, where: float) -> None:
    path, folder = _write(tmp_path), tmp_path / "cache"
    first = _compile(path, folder)
    (entry,) = (entry for entry in Cache(folder).entries() if entry.kind == kind)
    content = bytearray(entry.path.read_bytes())
    content[int(len(content) * where)] ^= 4
    entry.path.write_bytes(bytes(content))
    cache = Cache(folder)
    second = _compile(path, cache)
    assert cache.counts.damaged == 1
    x = np.random.default_rng(0).standard_normal((4, 32), dtype=np.float32)
    assert np.array_equal(first(x), second(x))
    assert not Cache(folder).verify()
    no_compiler()
    _compile(path, folder)


@pytest.mark.sample(0)
@pytest.mark.usefixtures("keep_all")
@pytest.mark.parametrize("is_foreign", [False, True])
@pytest.mark.parametrize("kind", [MODELS, MANIFESTS])
def test_what_vanishes_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_compiler, kind: str, is_foreign: bool
) -> None:
    """A folder of the cache is removed before any call to the system, also where the model is for another machine."""
    path, folder = _write(tmp_path), tmp_path / "cache"
    _compile(path, folder)
    shutil.copytree(folder, tmp_path / "copy")
    no_compiler()
    if is_foreign:
        monkeypatch.setattr(Executable, "__init__", _not_for_this_machine)

    def lookup() -> object:
        try:
            return _compile(path, folder)
        except AssertionError:
            return None

    lookup()  # what is imported once
    loaded = []
    for before, model in interrupted(lookup, lambda: shutil.rmtree(folder / kind)):
        assert model is None or isinstance(model, UnloadedModel) == is_foreign, before
        loaded.append(model is not None)
        shutil.copytree(tmp_path / "copy", folder, dirs_exist_ok=True)
    assert not loaded[0] and loaded[-1], "the first call is before the lookup, the last one behind it"


def _not_for_this_machine(*arguments: object) -> None:
    raise NotForThisMachine("it is for another machine")


def _reason(model: object, **options: object) -> str:
    found = cache_key(Cache(Path("nowhere")), model, LLVM, options)
    assert isinstance(found, Uncacheable), found
    return found.reason


def test_what_cannot_be_part_of_a_key_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path)
    monkeypatch.setattr(model_cache, "extended", lambda target: None)
    assert isinstance(
        cache_key(Cache(tmp_path), path, LLVM, {"threads": 2, "strategies": {"relax.conv": "im2col"}}), CacheKey
    )
    assert "option" in _reason(path, legalize={"relax.relu": print})
    assert "option" in _reason(path, strategies={"relax.relu": print})
    assert "measured" in _reason(path, strategies="measure")
    assert isinstance(cache_key(Cache(tmp_path), path.read_bytes(), LLVM, {}), CacheKey)
    assert "no cache" in str(cache_key(None, path, LLVM, {}))
    assert "cannot be read" in _reason(tmp_path / "other.onnx")


def test_rules_of_a_script_are_not_kept(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
import mirlo
from mirlo.passes.targets import declared_target
from mirlo.runtime.cache import Cache
from mirlo.driver.model_cache import CacheKey, cache_key
before = cache_key(Cache(Path("nowhere")), sys.argv[1], declared_target("llvm"), {})
@mirlo.legalize("relax.relu")
def mine(op, builder): ...
after = cache_key(Cache(Path("nowhere")), sys.argv[1], declared_target("llvm"), {})
print(isinstance(before, CacheKey), after)
"""
    out = output_of(python("-c", script, _write(tmp_path)))
    assert out.startswith("True Uncacheable") and "extended" in out


def test_an_answer_imports_nothing_of_the_compiler(tmp_path: Path) -> None:
    """Each module of Mirlo takes a third of a millisecond."""
    path = _write(tmp_path)
    script = f"""
import sys, mirlo
from mirlo.driver import build as building
building.MIN_COMPILE_SECONDS = 0.0
exe = mirlo.compile({str(path)!r}, shapes={{"x": [4, 32]}}, cache={str(tmp_path / "cache")!r})
print(*({{name.split(".")[0] for name in sys.modules}} & {{"torch_mlir", "mlir", "onnx"}}))
print(*(name for name in sys.modules if name.startswith("mirlo.")))
"""
    libraries, modules = output_of(python("-c", script)).splitlines()
    assert libraries and "mirlo.passes.rules" in modules.split()
    libraries, modules = output_of(python("-c", script)).splitlines()
    assert not libraries and "mirlo.passes.rules" not in modules.split() and len(modules.split()) <= MODULES


@pytest.mark.sample(0)
def test_the_command(tmp_path: Path) -> None:
    path, folder = _write(tmp_path), tmp_path / "cache"
    flags = ["--shape", "x=4x32", "-o", tmp_path / "m.mirlo"]
    output_of(mirlo("compile", path, *flags, "--no-cache"))
    assert not folder.exists()
    output_of(mirlo("compile", path, *flags, "--cache-dir", folder))
    listed = output_of(mirlo("cache", "list", "--cache-dir", folder)).splitlines()
    assert listed[0].split() == ["kind", "key", "size", "used"] and len(listed) > 1
    assert output_of(mirlo("cache", "path", "--cache-dir", folder)).strip() == str(folder)
    assert "limit: 4.0 GiB" in output_of(mirlo("cache", "size", "--cache-dir", folder))
    entry = Cache(folder).entries()[0]
    entry.path.write_bytes(b"no code")
    assert f"removed {entry.kind} {entry.key}: damaged" in output_of(mirlo("cache", "verify", "--cache-dir", folder))
    assert "limit: 1.5 KiB" in output_of(mirlo("cache", "limit", "1.5KiB", "--cache-dir", folder))
    assert sum(entry.bytes for entry in Cache(folder).entries()) <= 1536
    output_of(mirlo("cache", "clear", "--cache-dir", folder))
    assert Cache(folder).entries() == []
    assert "expected a size" in mirlo("cache", "limit", "much").stderr
    assert json.loads((folder / "limit").read_text()) == 1536


def test_the_key_holds_the_sources_that_compile() -> None:
    """Any folder that the driver may import affects the key."""
    script = (
        "import mirlo.driver.compiler, sys; print(*{n.split('.')[1] for n in sys.modules if n.startswith('mirlo.')})"
    )
    assert set(output_of(python("-c", script)).split()) <= set(MODEL_FOLDERS)


def test_steps_are_reported_in_order(tmp_path: Path, keep_all: None) -> None:
    """A first compilation keeps the model, a second one looks it up, and without a cache it is neither."""
    path = _write(tmp_path)

    def steps(**options: object) -> list[str]:
        reported: list[str] = []
        package.compile(path, progress=lambda step, *_: reported.append(step), jobs=1, **options)
        return reported

    first, second, without = steps(cache=tmp_path / "c"), steps(cache=tmp_path / "c"), steps(cache=False)
    assert first[0] == "cache" and "import" in first and first[-2:] == ["keep", "load"]
    assert second[0] == "cache" and not {"import", "keep"} & set(second)
    assert without[0] == "import" and without[-1] == "load" and "keep" not in without
    assert [step for step in first if step not in ("cache", "keep")] == without
