"""Profiles: one row per kernel, in real time."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.runtime.artifact import KernelInfo
from mirlo.runtime.errors import ArtifactError, InputError
from mirlo.runtime.executable import Executable
from mirlo.runtime.external import DeviceStep, ExternalArtifact, ExternalFunctions, LoadedExternals
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.profile import KernelRow, Profile, make_profile


def test_rows(affine):
    exe = affine(1 << 18)
    inputs = exe.random_inputs(seed=1)
    profile = exe.profile(**inputs, repeats=5)
    assert [row.symbol for row in profile] == ["add", "mul"] and profile.repeats == 5
    assert [row.source for row in profile] == ["/layer/Add", "/layer/Mul"]
    assert sum(row.share for row in profile) == pytest.approx(1)
    for row in profile:
        assert row.gflops == pytest.approx((1 << 18) / row.microseconds * 1e-3)
        assert row.gbytes == pytest.approx(12 * row.gflops)
    start = time.perf_counter()
    for _ in range(5):
        exe(**inputs)
    per_call = (time.perf_counter() - start) / 5 * 1e6
    assert per_call / 500 < profile.microseconds < 500 * per_call  # ticks became microseconds, not milliseconds


def test_without_inputs_and_bad_repeats(affine):
    assert len(affine().profile()) == 2
    with pytest.raises(InputError, match="repeats: expected 1 or more, found 0"):
        affine().profile(repeats=0)


def test_table_and_kinds():
    kernels = [KernelInfo(f"k{index}", f"/node{index}", "conv" if index % 2 else "add", 2000, 0) for index in range(4)]
    # Two runs; kernels take 10, 20, 30, 40 ticks, of 100 ns each.
    stamps = np.array([[5, 15, 35, 65, 105], [1000, 1010, 1030, 1060, 1100]], np.uint64)
    profile = make_profile(kernels, stamps, 1e-7)
    assert [row.microseconds for row in profile] == pytest.approx([1, 2, 3, 4])
    assert [row.share for row in profile] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert profile[1].gflops == pytest.approx(1.0)
    assert [(row.kind, row.calls) for row in profile.by_kind()] == [("conv", 2), ("add", 2)]
    assert [row.microseconds for row in profile.by_kind()] == pytest.approx([6, 4])
    assert profile.table(limit=2).splitlines() == [
        "kernel  kind   us  share  GFLOP/s  GB/s  source",
        "k3      conv  4.0  40.0%      0.5     -  /node3",
        "k2      add   3.0  30.0%      0.7     -  /node2",
        "and 2 more, 30.0%",
        "",
        "conv  2 calls  6.0  60.0%",
        "add   2 calls  4.0  40.0%",
        "4 kernel calls, 10.0 us (median of 2 runs)",
    ]
    assert str(profile).count("/node") == 4


def test_calls_of_a_loop_have_the_time_of_all_iterations() -> None:
    """A loop of 4 iterations of 10 ticks, whose second call is itself a loop: 2 ticks before its last iteration."""
    names = {"first": 0, "loop": 4, "a": 0, "inner": 2, "b": 0, "c": 0, "skipped": 1, "never": 0}
    kernels = [KernelInfo(name, "/n", "k", 400, 0, inside=inside) for name, inside in names.items()]
    # first, entry of the last iteration, a, entry of the inner loop's last iteration, b, c; then a branch not taken.
    stamps = np.array([[100, 105, 135, 139, 141, 142, 145, 0, 145]], np.uint64)
    profile = make_profile(kernels, stamps, 1e-6)
    times = {row.symbol: row.microseconds for row in profile}
    assert times == pytest.approx(
        {"first": 5, "loop": 0, "a": 16, "inner": 0, "b": 6, "c": 18, "skipped": 0, "never": 0}
    )
    assert profile[2].gflops == pytest.approx(400 / 4 * 1e-3)  # of one call


def test_kernels_of_a_scan() -> None:
    """The rows of calls in a loop, also where it has no iterations."""
    row = helper.make_tensor_value_info("row", TensorProto.FLOAT, [8])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [8])
    body = helper.make_graph([helper.make_node("Softmax", ["row"], ["out"])], "body", [row], [out])
    scan = helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xy"]
    graph = helper.make_graph([scan], "scan", ports[:1], ports[1:])
    exe = mirlo.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))
    profile = exe.profile(np.ones((50, 8), np.float32), repeats=3)
    rows = {row.symbol: row for row in profile}
    softmax = next(row for name, row in rows.items() if "softmax" in name)
    assert softmax.microseconds > 0 and softmax.gflops > 0
    assert rows["scf.while"].microseconds == 0
    assert all(kernel.inside > 0 for kernel in exe.artifact.kernels if kernel.symbol == "scf.while")
    assert exe.profile(np.ones((0, 8), np.float32), repeats=3).microseconds >= 0


def test_code_without_time_stamps(make_artifact):
    exe = Executable(make_artifact("ret void", kernels=(KernelInfo("k", "", "add", 1, 1),)), ParameterStore())
    with pytest.raises(ArtifactError, match="writes no time stamps"):
        exe.profile()


def test_devices_report_steps() -> None:
    steps = [DeviceStep("conv", 12.0, details={"array": 9}), DeviceStep("dense", 36.0)]
    externals = LoadedExternals()
    made = ExternalFunctions({"unit_0": lambda *tensors: None}, steps=lambda function: steps)
    externals.add(ExternalArtifact("unit", ("unit_0",), target="unit"), made)
    profile = Profile([KernelRow("unit.unit_0", "conv", "packed", 5.0, 1.0, 0.0, 0.0)], 1, externals.steps())
    assert profile.device == {"unit.unit_0": tuple(steps)}
    *_, head, first, second = str(profile).splitlines()
    assert head.split() == ["step", "cycles", "share", "array"]
    assert first.split() == ["dense", "36", "75.0%", "-"]
    assert second.split() == ["conv", "12", "25.0%", "9"]
    assert "unit.unit_0: 2 steps, 48 cycles" in str(profile)
    with pytest.raises(ValueError, match="its loader returns no `spans`"):
        profile.timeline()


def test_time_lines_have_a_row_for_each_part() -> None:
    steps = [
        DeviceStep("conv", 100.0, spans=[("array", 10, 20), ("array", 20, 60), ("array", 90, 100)]),
        DeviceStep("a < b", 100.0, spans=[("copies", 0, 50)]),
    ]
    picture = Profile([], 1, {"unit.unit_0": steps}).timeline()
    bars = re.findall(r'<rect x="([0-9.]+)" y="(\d+)" width="([0-9.]+)"', picture)
    assert bars == [("160.0", "44", "250.0"), ("560.0", "44", "50.0"), ("610.0", "66", "250.0")]
    assert "a &lt; b" in picture and "200 cycles" in picture
    assert re.findall(r'text-anchor="end">([^<]*)<', picture) == ["array", "copies", "200 cycles"]
