"""Models on the simulated unit: in Python, in a library without Python, and parts that are not placed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mirlo_systolic import simulator, tuning
from mirlo_systolic.expressions import Misfit
from mirlo_systolic.layers import Tiling

import mirlo
from mirlo.benchmarks.models import tiny
from mirlo.testing import placement_of, runs_as_library, stages_round_trip

pytestmark = pytest.mark.skipif(
    bool(simulator.missing_tools()), reason=f"install {', '.join(simulator.missing_tools())}"
)
SIMULATOR = """
#include <dlfcn.h>
#include <stdint.h>
typedef int execute(uint8_t *, uint64_t, const uint32_t *, uint64_t, uint64_t *, uint64_t);
int systolic_execute(uint8_t *memory, uint64_t size, const uint32_t *commands, uint64_t count, uint64_t *records,
                     uint64_t record_count) {
  void *library = dlopen("PATH", RTLD_NOW);
  execute *call = library ? (execute *)dlsym(library, "systolic_execute") : 0;
  return call ? call(memory, size, commands, count, records, record_count) : 2;
}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tiny.QuantizedFiles:
    return tiny.QuantizedFiles(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("options", ["", "{rows=3 chunk=5}"])
@pytest.mark.parametrize("name", ["resnet_8", "ds_cnn", "autoencoder"])
def test_results_are_those_of_the_cpu(models: tiny.QuantizedFiles, name: str, options: str) -> None:
    path = models / f"{name}.onnx"
    executable = mirlo.compile(path, f"systolic{options},llvm", cache=False)
    cpu = mirlo.compile(path, cache=False)
    assert executable.artifact.externals
    for x in (tiny.samples(name, 1, seed=1), cpu.random_inputs()["x"]):
        np.testing.assert_array_equal(executable(x), cpu(x))


def test_profiles_have_the_cycles_of_each_layer(models: tiny.QuantizedFiles) -> None:
    executable = mirlo.compile(models / "resnet_8.onnx", "systolic,llvm", cache=False)
    first, second = (executable.profile(repeats=1) for _ in range(2))
    name = "systolic.systolic_0"
    steps = first.device[name]
    assert [len(steps) for steps in first.device.values()] == [14]
    assert steps == second.device[name]
    assert all(step.amount > step.details["array"] > 0 for step in steps)
    assert "Relu_2_quantized_2" in str(first) and "cycles" in str(first)


def test_tuning_takes_fewer_cycles(models: tiny.QuantizedFiles, tmp_path: Path) -> None:
    path, x = models / "resnet_8.onnx", tiny.samples("resnet_8", 1, seed=1)
    cpu, database = mirlo.compile(path), tmp_path / "tuning.json"
    command = ["tune", path, "--target", "systolic,llvm", "--database", database, "--seconds", "60"]
    subprocess.run([sys.executable, "-m", "mirlo.tools.cli", *map(str, command)], check=True, capture_output=True)
    cycles = []
    for tune in (False, database):
        executable = mirlo.compile(path, "systolic,llvm", cache=False, tune=tune)
        np.testing.assert_array_equal(executable(x), cpu(x))
        steps = executable.profile(x, repeats=1).device["systolic.systolic_0"]
        cycles.append(sum(step.amount for step in steps))
    assert cycles[1] < cycles[0]  # by how much depends on what the search had time for


def test_regions_that_go_back_are_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: object, tiling: Tiling) -> None:
        raise Misfit("no layer", operator="relax.permute")

    monkeypatch.setattr(tuning, "place_region", refuse)
    assert tuning.tunables(SimpleNamespace(functions=[None]), Tiling()) == []


def test_placement_takes_cycles(models: tiny.QuantizedFiles) -> None:
    (region,) = placement_of(models / "resnet_8.onnx", "systolic,llvm").placement.regions
    executable = mirlo.compile(models / "resnet_8.onnx", "systolic,llvm", cache=False)
    steps = executable.profile(tiny.samples("resnet_8", 1), repeats=1).device["systolic.systolic_0"]
    assert region.microseconds == sum(step.amount for step in steps) / simulator.MEGAHERTZ


@pytest.mark.parametrize(("options", "reason"), [("chunk=65", "expected 1 to 64"), ("rows=-1", "expected 0 or more")])
def test_tilings_that_do_not_fit_are_errors(models: tiny.QuantizedFiles, options: str, reason: str) -> None:
    with pytest.raises(mirlo.MirloError, match=reason):
        mirlo.compile(models / "autoencoder.onnx", f"systolic{{{options}}},llvm", cache=False)


def test_placement_by_estimated_cost(models: tiny.QuantizedFiles) -> None:
    executable = mirlo.compile(models / "resnet_8.onnx", "systolic,llvm", cache=False, placement="estimated")
    assert len(executable.artifact.externals) <= 1


def test_a_saved_model_computes_the_same(models: tiny.QuantizedFiles, tmp_path: Path) -> None:
    executable = mirlo.compile(models / "ds_cnn.onnx", "systolic,llvm", cache=False)
    executable.save(tmp_path / "model.mirlo")
    x = tiny.samples("ds_cnn", 1, seed=2)
    np.testing.assert_array_equal(mirlo.load(tmp_path / "model.mirlo")(x), executable(x))


@pytest.mark.parametrize("options", ["", "{device}"])
def test_a_library_calls_the_driver(models: tiny.QuantizedFiles, tmp_path: Path, options: str) -> None:
    from mirlo_systolic.generator import driver_source

    path, x = models / "ds_cnn.onnx", tiny.samples("ds_cnn", 1, seed=3)
    sources = [tmp_path / "simulator.c"]
    sources[0].write_text(SIMULATOR.replace("PATH", str(simulator.library_path())))
    if options:
        sources.append(tmp_path / "driver.c")
        sources[1].write_text(driver_source())
    runs_as_library(path, mirlo.compile(path), x, target=f"systolic{options},llvm", sources=sources, rtol=0, atol=0)


def test_stages(models: tiny.QuantizedFiles) -> None:
    stages_round_trip(models / "ds_cnn.onnx", target="systolic,llvm")


def test_what_is_not_placed_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text("""
func.func @main(%x: tensor<4x20xi8> {relax.name = "x"}, %w: tensor<20x16xi8> {relax.name = "w"})
    -> (tensor<4x16xi8> {relax.name = "y"}) {
  %0 = "relax.matmul"(%x, %w) {out_dtype = i32} : (tensor<4x20xi8>, tensor<20x16xi8>) -> tensor<4x16xi32>
  %1 = "relax.cast"(%0) {dtype = f32} : (tensor<4x16xi32>) -> tensor<4x16xf32>
  %2 = "relax.constant"() {value = dense<0.01> : tensor<f32>} : () -> tensor<f32>
  %3 = "relax.constant"() {value = dense<0> : tensor<i8>} : () -> tensor<i8>
  %4 = "relax.multiply"(%1, %2) : (tensor<4x16xf32>, tensor<f32>) -> tensor<4x16xf32>
  %5 = "relax.quantize"(%4, %2, %3) {dtype = i8} : (tensor<4x16xf32>, tensor<f32>, tensor<i8>) -> tensor<4x16xi8>
  return %5 : tensor<4x16xi8>
}
""")
    words = [
        sys.executable,
        "-m",
        "mirlo.tools.cli",
        "partition",
        tmp_path / "model.mlir",
        "--targets",
        "systolic,llvm",
    ]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
    assert "not on systolic" in done.stdout
    assert "constant" in done.stdout


def test_the_page(models: tiny.QuantizedFiles) -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text()
    blocks = re.findall(r"^```sh\n# run\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    folder = (models / "resnet_8.onnx").parent
    commands = {"mirlo": [sys.executable, "-m", "mirlo.tools.cli"], "python": [sys.executable]}
    for line in "".join(blocks).splitlines():
        program, *words = shlex.split(line)
        done = subprocess.run([*commands[program], *words], capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert "results equal" in done.stdout
