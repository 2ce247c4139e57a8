"""SVE with vectors of one length: the code, its results under emulation, and its refusal elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import emulated_aarch64
import numpy as np
import pytest
from libraries import make_program
from library_models import MODELS, dynamic_model
from onnx_models import F32, make_model, node

import mirlo
from mirlo.driver.code import kernel_listings
from mirlo.driver.request import CompileRequest
from mirlo.runtime.errors import NotForThisMachine
from mirlo.runtime.host_cpu import HostCpu, host_cpu
from mirlo.runtime.loaders import load_code
from mirlo.targets.llvm.machine import MachineError
from mirlo.targets.llvm.options import parse_options

TRIPLE = "triple=aarch64-linux-gnu"
A64FX = f"llvm{{cpu=a64fx {TRIPLE}}}"
V1 = f"llvm{{cpu=neoverse-v1 {TRIPLE} features=+sve256}}"
TARGETS = {A64FX: ("a64fx", 512), V1: ("max,sve-default-vector-length=32", 256)}
"""By target, the emulated processor and the bits of its vectors."""


def test_machines_have_the_length() -> None:
    for target, (_, bits) in TARGETS.items():
        options = parse_options(target[5:-1])
        assert (options.machine.vector_bytes, options.machine.dots) == (bits // 8, ())
        assert "+sve," in f"{options.processor.llvm_features}," and "sve256" not in options.processor.llvm_features
    assert parse_options(f"cpu=neoverse-v1 {TRIPLE}").machine.vector_bytes == 16
    with pytest.raises(MachineError, match="vectors have one length, found sve256, sve512"):
        parse_options(f"cpu=a64fx {TRIPLE} features=+sve256")


@pytest.mark.parametrize("target", TARGETS)
def test_products_are_of_scalable_vectors(target: str) -> None:
    w = np.ones((64, 64), np.float32)
    model = make_model([node("MatMul", "x w", "y")], {"x": (F32, (8, 64))}, ["y"], {"w": w})
    listings = kernel_listings(CompileRequest(model, target), "asm")
    products = re.findall(rb"fml[as]\s+([zv])\d", b"".join(listing.content for listing in listings))
    assert products and set(products) == {b"z"}


@pytest.mark.sample(0)
@pytest.mark.skipif(bool(emulated_aarch64.missing()), reason=emulated_aarch64.missing() or "there is")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", TARGETS)
def test_programs_with_scalable_vectors(target: str, name: str, tmp_path: Path) -> None:
    make, inputs = MODELS[name]
    cpu, bits = TARGETS[target]
    runner = [emulated_aarch64.EMULATOR, "-cpu", cpu]
    program = make_program(
        make(), tmp_path, emulated_aarch64.COMPILER, target, threads=2, flags=["-static"], runner=runner
    )
    expected = mirlo.compile(make(), cache=False, jobs=1).run(inputs).values()
    for found, wanted in zip(program.run(inputs), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    program.runner = (emulated_aarch64.EMULATOR, "-cpu", "max,sve-default-vector-length=16")
    refused = program.start()
    assert refused.returncode and f"compiled for a processor with sve{bits}, which this one lacks" in refused.stderr


def test_other_lengths_are_refused_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = mirlo.compile(dynamic_model(), V1, cache=False, jobs=1).artifact
    assert "sve256" in artifact.metadata["features"]
    features = {"bf16", "i8mm", "dotprod", "fullfp16", "sve", "sve512"}
    monkeypatch.setattr("mirlo.runtime.loaders.host_cpu", lambda: HostCpu("", frozenset(features), host_cpu().triple))
    monkeypatch.setattr("mirlo.runtime.loaders.platform_of", lambda triple: ("aarch64", "linux"))
    with pytest.raises(NotForThisMachine, match="a CPU with sve256, which this one lacks"):
        load_code(artifact)
