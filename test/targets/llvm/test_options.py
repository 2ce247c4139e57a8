"""The options of target `llvm`: processors by name, and what follows from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx_models import F32, make_model, node
from presets import runs_code_of

import mirlo
from mirlo.passes.targets import CompileOptions, TargetError, find_target
from mirlo.runtime.errors import ArtifactError, NotForThisMachine
from mirlo.runtime.host_cpu import HostCpu, host_cpu
from mirlo.targets.llvm.cpus import CPUS, X86
from mirlo.targets.llvm.machine import MachineError
from mirlo.targets.llvm.options import (
    find_machine,
    host_machine,
    machine_of,
    parse_options,
    planning_options,
    saves_memory,
)
from mirlo.targets.llvm.pipeline import compile_pipeline
from mirlo.targets.llvm.processor import Processor, host_processor

V2, V3, V4 = (f"cpu=x86-64-v{level}" for level in (2, 3, 4))


REMEMBERED = (host_processor, host_machine, parse_options)


@pytest.fixture(params=["x86-64-v2", "znver3", "cascadelake"])
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the name of a processor on which the compiler seems to run."""
    cpu: str = request.param
    found = HostCpu(cpu, CPUS[cpu].features, "x86_64-unknown-linux-gnu")
    monkeypatch.setattr("mirlo.targets.llvm.processor.host_cpu", lambda: found)
    monkeypatch.setattr("mirlo.targets.llvm.processor.platform.machine", lambda: "x86_64")
    for each in REMEMBERED:
        each.cache_clear()
    yield cpu
    for each in REMEMBERED:
        each.cache_clear()


@pytest.mark.parametrize("text", ["", "cpu=native"])
def test_without_options_it_is_this_machine(text: str, host: str) -> None:
    found, named = parse_options(text), parse_options(f"cpu={host}")
    assert (found.processor.cpu, set(found.processor.features), found.threads) == (host, CPUS[host].features, None)
    for fact in ("vector_bytes", "vector_registers", "dots"):
        assert getattr(found.machine, fact) == getattr(named.machine, fact)


@pytest.mark.parametrize(
    ("text", "vector_bytes", "registers", "dots", "has_fma"),
    [
        ("cpu=x86-64", 16, 16, (), False),
        (V2, 16, 16, (), False),
        (V3, 32, 16, ("i16",), True),
        (V4, 64, 32, ("i16",), True),
        ("cpu=cascadelake", 64, 32, ("i16", "u8xi8"), True),
        ("cpu=znver4", 64, 32, ("bf16", "i16", "u8xi8"), True),
        ("cpu=alderlake", 32, 16, ("i16", "u8xi8"), True),
        ("cpu=x86-64-v4 features=-avx512vl", 32, 16, ("i16",), True),
        ("cpu=x86-64-v3 features=-fma", 16, 16, (), False),
        ("cpu=neoverse-n1", 16, 32, ("i8xi8",), True),
        ("cpu=cortex-a72", 16, 32, (), True),
        ("cpu=sifive-x280", 64, 32, (), True),
        ("cpu=generic triple=wasm32-unknown-unknown features=+simd128", 16, 15, (), False),
    ],
)
def test_machines_follow_from_processors(
    text: str, vector_bytes: int, registers: int, dots: tuple[str, ...], has_fma: bool
) -> None:
    found = parse_options(text)
    machine = found.machine
    assert (machine.vector_bytes, machine.vector_registers, machine.dots) == (vector_bytes, registers, dots)
    assert found.processor.has_fma == has_fma
    assert find_machine(text) == machine


@pytest.mark.parametrize(("cpu", "has_mesh"), [("rocketlake", True), ("znver5", False), ("emeraldrapids", True)])
def test_features_tell_what_a_virtual_machine_hides(cpu: str, has_mesh: bool) -> None:
    """Hypervisors report a Xeon with f16 as a model without: what its features imply holds."""
    features = tuple(sorted(CPUS["emeraldrapids"].features))
    machine = machine_of(Processor("x86_64-unknown-linux-gnu", cpu, features))
    named = parse_options("cpu=emeraldrapids").machine
    assert (machine.exposed_loads == named.exposed_loads) == has_mesh
    assert (machine.l3_bytes_per_cycle == named.l3_bytes_per_cycle) == has_mesh


def test_a_processor_without_a_feature_keeps_its_constants() -> None:
    named, without = (parse_options(f"cpu=emeraldrapids{more}").machine for more in ("", " features=-avx512fp16"))
    assert without == replace(named, name=without.name)


def test_caches_and_threads_are_options() -> None:
    found = parse_options("cpu=neoverse-n1 l1=32K l2=2MiB l3=0 threads=3")
    assert (found.machine.l1_bytes, found.machine.l2_bytes, found.machine.l3_bytes) == (32 << 10, 2 << 20, 0)
    assert found.threads == 3
    assert (found.thread_work, parse_options("thread_work=500").thread_work) == (None, 500)
    assert planning_options("thread_work=500 threads=2") == ""
    text = compile_pipeline(CompileOptions(threads=2, target_options="thread_work=500"))
    assert text.endswith("outline-parallel{threads=2 work=500})")
    assert parse_options("cpu=neoverse-n1").machine.l2_bytes == 1 << 20


def test_little_memory_has_no_larger_weights() -> None:
    small, large = (CompileOptions(target_options=f"memory={size}") for size in ("small", "large"))
    assert saves_memory(small) and not saves_memory(large) and planning_options("memory=small") == ""
    assert compile_pipeline(large) == compile_pipeline() and "winograd" in compile_pipeline()
    larger = ("winograd,", "fold-constant{all=true packed=true widens=true},")
    assert all(each in compile_pipeline() for each in larger)
    assert compile_pipeline(small) == compile_pipeline().replace(larger[0], "").replace(larger[1], "")


def test_largest_winograd_tile() -> None:
    assert (parse_options("winograd=2").winograd, parse_options().winograd) == (2, None)
    assert planning_options("winograd=2") == ""
    text = compile_pipeline(CompileOptions(target_options="winograd=2"))
    assert text == compile_pipeline().replace("winograd,", "winograd{tile=2},")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu=znver33", "unknown 'znver33'; did you mean 'znver3'"),
        ("chip=x", "no option 'chip'; it has: cpu, triple"),
        ("cpu", "option cpu of target 'llvm' has no value"),
        ("cpu=znver3 cpu=znver4", "given twice"),
        ("cpu=znver3 triple=aarch64-linux-gnu", "'znver3' is a processor for x86_64, the triple is 'aarch64"),
        ("triple=sparc-sun-solaris cpu=generic", "makes code for x86_64, .*, wasm32, hexagon, found the triple"),
        ("triple=aarch64-linux-gnu", "not known to run code for 'aarch64-linux-gnu'; name one: .*neoverse-n1"),
        ("cpu=x86-64-v3 features=+avx3", r"no code for x86_64 uses 'avx3'; did you mean 'avx"),
        ("cpu=x86-64-v3 features=avx512f", r"expected features such as .*, found 'avx512f'"),
        ("cpu=x86-64-v3 triple=x86_64;rm", "expected one such as"),
        ("l2=-1", "option l2 of target 'llvm': expected a size"),
        ("l2=99999GiB", "expected a size"),
        ("threads=0", "threads of target 'llvm': expected 1 to 4096"),
        ("memory=2GB", "option memory of target 'llvm': expected small or large, found '2GB'"),
        ("reduce_range=7", "option reduce_range of target 'llvm': expected true or false, found '7'"),
        ("winograd=3", "option winograd of target 'llvm': expected 0, 2 or 4, found '3'"),
        ("thread_work=1e6", "option thread_work of target 'llvm': expected 1 to 1099511627776, found '1e6'"),
    ],
)  # fmt: skip
def test_options_that_describe_nothing_are_errors(text: str, message: str) -> None:
    with pytest.raises(MachineError, match=message):
        parse_options(text)


def test_each_level_has_what_the_one_before_has() -> None:
    levels = [CPUS[name].features for name in ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")]
    assert all(low < high for low, high in zip(levels, levels[1:], strict=False))


def _model() -> object:
    """Return a model with products, rows, and functions with exact and with loose fused operations."""
    w = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
    nodes = [
        node("MatMul", "x w", "a"), node("Gelu", "a", "b"), node("Softmax", "b", "y"), node("Erf", "a", "e"),
        node("Sigmoid", "x", "s"), node("Pow", "s x", "p"), node("Sin", "x", "c"),
    ]  # fmt: skip
    return make_model(nodes, {"x": (F32, ("n", 64))}, ["y", "e", "p", "c"], {"w": w}, opset=20)


LEVELS = [name for name in ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4") if runs_code_of(name)]


@pytest.mark.sample(0)
@pytest.mark.parametrize("cpu", LEVELS)
def test_code_of_each_level_computes_the_same(cpu: str) -> None:
    x = np.random.default_rng(1).standard_normal((7, 64)).astype(np.float32)
    expected = mirlo.compile(_model(), cache=False, jobs=1)(x)
    for found, wanted in zip(
        mirlo.compile(_model(), f"llvm{{cpu={cpu}}}", cache=False, jobs=1)(x), expected, strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=1e-6)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("options", "never"),
    [(V2, rb"\bymm|\bzmm|\bv[a-z]+ps|call\S*\s+fmaf"), (V3, rb"\bzmm"), ("cpu=neoverse-n1", rb"fmaf")],
)
def test_code_uses_no_more_than_its_processor_has(options: str, never: bytes) -> None:
    module = _planned(options)
    assert not re.search(never, module)


def _planned(options: str) -> bytes:
    """Return the assembly of the model for these options."""
    from mirlo.dialects.bindings import ir
    from mirlo.frontends.onnx.importer import import_model
    from mirlo.passes.pipeline import Pipeline
    from mirlo.passes.session import Session
    from mirlo.targets.llvm.machine_code import CodeSettings
    from mirlo.targets.llvm.object_code import EntryInterface, compile_text
    from mirlo.targets.llvm.units import split

    given = CompileOptions(target_options=options)
    module, store = import_model(_model())
    with module.context, ir.Location.unknown():
        pipeline = find_target("llvm").pipeline
        assert pipeline is not None
        Pipeline(pipeline(given)).run(module, Session(store))
        settings = CodeSettings(parse_options(options).processor, form="asm")
        units = split(module, EntryInterface(5, 1, (), False, 4), settings)
        module.context.allow_unregistered_dialects = True
        return b"\n".join(compile_text(unit.text, settings, None) for unit in units[1:] or units)


def test_files_name_the_features_that_code_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for x86-64-v3 loads on all such processors, whatever the compiling host has."""
    if "x86-64-v3" not in LEVELS:
        pytest.skip("this machine is not an x86-64-v3")
    made = mirlo.compile(_model(), f"llvm{{{V3}}}", cache=False, jobs=1)
    made.save(tmp_path / "m.mirlo")
    assert set(made.artifact.metadata["features"]) == CPUS["x86-64-v3"].features
    x = np.ones((2, 64), np.float32)
    for cpu in ("x86-64-v3", "haswell", "znver2", "icelake-server"):
        monkeypatch.setattr(
            "mirlo.runtime.loaders.host_cpu", lambda cpu=cpu: HostCpu(cpu, CPUS[cpu].features, host_cpu().triple)
        )
        for found, wanted in zip(mirlo.load(tmp_path / "m.mirlo")(x), made(x), strict=True):
            np.testing.assert_array_equal(found, wanted)
    monkeypatch.setattr(
        "mirlo.runtime.loaders.host_cpu", lambda: HostCpu("nehalem", CPUS["nehalem"].features, host_cpu().triple)
    )
    with pytest.raises(ArtifactError, match=r"a CPU with .*avx2.*, which this one lacks.*cpu="):
        mirlo.load(tmp_path / "m.mirlo")


def test_fingerprints_tell_processors_apart() -> None:
    fingerprint = find_target("llvm").fingerprint
    assert fingerprint is not None
    texts = ["", V2, V3, f"{V3} l2=1MiB", f"{V3} features=+avxvnni", "cpu=neoverse-n1"]
    assert len({fingerprint(text) for text in texts}) == len(texts)
    assert fingerprint("cpu=native") == fingerprint("")


@pytest.mark.sample(0)
def test_models_for_other_machines_are_saved_but_not_called(tmp_path: Path) -> None:
    other = "cpu=neoverse-n1" if host_processor().arch == X86 else V3
    (tmp_path / "m.onnx").write_bytes(_model().SerializeToString())  # type: ignore[attr-defined]
    for _ in range(2):  # the second one comes from the cache
        made = mirlo.compile(tmp_path / "m.onnx", f"llvm{{{other}}}", cache=tmp_path / "cache", jobs=1)
        made.save(tmp_path / "m.mirlo")
        assert [spec.name for spec in made.inputs] == ["x"] and made.memory.weights_bytes > 0
        for call in (lambda made=made: made(np.ones((1, 64), np.float32)), lambda: mirlo.load(tmp_path / "m.mirlo")):
            with pytest.raises(NotForThisMachine, match="the model was compiled for .*, this machine is"):
                call()


FAT = "llvm{cpu=x86-64|x86-64-v2|x86-64-v3|sapphirerapids threads=1}"


@pytest.mark.sample(0)
@pytest.mark.skipif(len(LEVELS) < 3, reason="this machine is not an x86-64-v3")
def test_builds_for_several_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = mirlo.compile(_model(), FAT, cache=False, jobs=1)
    made.save(tmp_path / "fat.mirlo")
    x = np.ones((2, 64), np.float32)
    for cpu in ("x86-64", "nehalem", "haswell", "znver4"):
        monkeypatch.setattr(
            "mirlo.runtime.loaders.host_cpu", lambda cpu=cpu: HostCpu(cpu, CPUS[cpu].features, host_cpu().triple)
        )
        best = [level for level in LEVELS[:3] if CPUS[level].features <= CPUS[cpu].features][-1]
        found = mirlo.load(tmp_path / "fat.mirlo")
        assert set(found.artifact.metadata["features"]) == CPUS[best].features
        wanted = mirlo.compile(_model(), f"llvm{{cpu={best}}}", cache=False, jobs=1)(x)
        for one, other in zip(found(x), wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(TargetError, match="alternatives are listed in one option"):
        mirlo.compile(_model(), "llvm{cpu=x86-64|x86-64-v2 l2=1MiB|2MiB}", cache=False)
    with pytest.raises(TargetError, match="chooses nothing when a model is loaded"):
        mirlo.compile(_model(), "nvvm{chip=sm_80|sm_90a}", cache=False)


def test_builds_of_which_none_is_for_this_machine(tmp_path: Path) -> None:
    other = "cpu=cortex-a72|neoverse-n1" if host_processor().arch == X86 else "cpu=x86-64|x86-64-v2"
    made = mirlo.compile(_model(), f"llvm{{{other}}}", cache=False, jobs=1)
    made.save(tmp_path / "fat.mirlo")
    for call in (lambda: made(np.ones((1, 64), np.float32)), lambda: mirlo.load(tmp_path / "fat.mirlo")):
        with pytest.raises(NotForThisMachine, match="none of the model's 2 builds is for this machine"):
            call()
