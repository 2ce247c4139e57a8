"""What would end the process is an error before; so are chips and options that do not exist."""

from __future__ import annotations

import struct
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import output_of, python

import mirlo
from mirlo import R
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import PassError
from mirlo.targets.llvm_text import readable_by_older
from mirlo.targets.nvvm import device, options
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.options import parse_options, planned_for
from mirlo.targets.nvvm.ptx import assemble, check_translated
from mirlo.testing.ptx.fake_cuda import FakeDriver


@mirlo.script
def model(x: R.Tensor[(4, 8), R.f32]):
    return R.softmax(x)


def test_an_operation_that_is_not_converted_is_named() -> None:
    with make_context():
        module = ir.Module.parse("func.func @f(%x: f32) -> f32 { %y = math.exp %x : f32  return %y : f32 }")
        with pytest.raises(PassError, match="'func.func' is not converted to NVVM"):
            check_translated(module.operation)


@pytest.mark.parametrize("name", ["llvm.sin.f64", "llvm.exp.f32", "llvm.pow.f32"])
def test_intrinsics_without_code_are_named(name: str) -> None:
    kind = {"f32": "float", "f64": "double"}[name[-3:]]
    arguments = ", ".join([kind] * (2 if "pow" in name else 1))
    with pytest.raises(PassError, match=f"NVIDIA GPUs have no code for '{name}'"):
        assemble(f"declare {kind} @{name}({arguments})", find_chip("sm_80"))


def test_functions_that_nobody_defines_are_named() -> None:
    with pytest.raises(PassError, match="a kernel calls 'expf', which is not defined on the GPU"):
        assemble("declare float @expf(float)", find_chip("sm_80"))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nvvm{chip=sm_91}", "unknown chip 'sm_91'; did you mean 'sm_89'?"),
        ("nvvm{chap=3}", "target 'nvvm' has no option 'chap'"),
        ("nvvm{tf32=maybe}", "option tf32 of target 'nvvm' is true or false, found 'maybe'"),
        ("llvm{chip=sm_80}", "target 'llvm' has no option 'chip'"),
    ],
)
def test_options_that_do_not_exist(target: str, message: str) -> None:
    with pytest.raises(mirlo.MirloError) as caught:
        mirlo.compile(model, target=target)
    assert message in str(caught.value)


def test_chips_are_chosen_by_name() -> None:
    assert parse_options("chip=sm_90a").chip.name == "sm_90a"


def test_the_chip_of_this_machine_has_its_own_number_of_units(driver: FakeDriver) -> None:
    known = (options._present, options._as_here, device.capability)
    for function in known:
        function.cache_clear()
    try:
        assert (parse_options("").chip.name, parse_options("").chip.units) == ("sm_90a", driver.units)
        assert parse_options("chip=sm_90a").chip.units == driver.units
        assert parse_options("chip=sm_80").chip.units == find_chip("sm_80").units
    finally:
        for function in known:
            function.cache_clear()


def test_schedules_are_told_the_chip() -> None:
    text = "chip=sm_90a tf32=true"
    asked = parse_options(text)
    assert planned_for({"machine": asked.machine}) == asked
    assert "machine=sm_90a+tf32}" in str(Pipeline.named("nvvm", SimpleNamespace(target_options=text)))


def test_without_a_driver_the_message_says_what_to_do() -> None:
    code = """
import sys
from mirlo.targets.nvvm import device
from mirlo.runtime.errors import MirloError
if len(sys.argv) > 1:
    sys.modules["cuda"] = sys.modules["cuda.bindings"] = None
try:
    device.driver()
    print("there is one")
except MirloError as error:
    print(error)
"""
    out = output_of(python("-c", code))
    assert "CUDA driver" in out or "pip install 'mirlo[cuda]'" in out or out == "there is one\n"
    assert "pip install 'mirlo[cuda]'" in output_of(python("-c", code, "without"))


NUMBERS = [0.1, -2.5, 1e-40, 3.4e38, float("inf"), -float("inf"), 65504.0]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_are_written_as_their_bits(number: float) -> None:
    with np.errstate(over="ignore"):
        single = float(np.float32(number))
    bits = struct.unpack("<Q", struct.pack("<d", single))[0]
    word = {float("inf"): "+inf", -float("inf"): "-inf"}.get(number, f"{number:.17e}")
    assert readable_by_older(f"  ret float {word}") == f"  ret float 0x{bits:016X}"


@pytest.mark.parametrize(("kind", "letter", "mantissa", "exponent"), [("half", "H", 10, 5), ("bfloat", "R", 7, 8)])
def test_short_decimals_are_the_nearest_numbers(kind: str, letter: str, mantissa: int, exponent: int) -> None:
    """Each number has as many digits as identify it; infinities follow the largest one."""
    least = 2 - 2 ** (exponent - 1) - mantissa
    for bits in range(1, (2**exponent - 1) << mantissa, 37):
        power, fraction = max(bits >> mantissa, 1), bits % 2**mantissa + (2**mantissa if bits >> mantissa else 0)
        number = Fraction(fraction) * Fraction(2) ** (power - 1 + least)
        for sign, high in (("", 0), ("-", 0x8000)):
            text = readable_by_older(f"ret {kind} {sign}{float(number):.6e}")
            assert text == f"ret {kind} 0x{letter}{bits | high:04X}", number


def test_bits_and_nans_of_every_format() -> None:
    assert readable_by_older("store float f0x402DF854, ptr %p") == "store float 0x4005BF0A80000000, ptr %p"
    assert readable_by_older("ret half +qnan") == "ret half 0xH7E00"
    assert readable_by_older("ret bfloat 1.000000e-01") == "ret bfloat 0xR3DCD"
    assert readable_by_older("ret float +nan(0x1234)") == "ret float 0x7FF8024680000000"
    assert readable_by_older('c"float 1.5" ; float 1.5') == 'c"float 1.5" ; float 1.5'


def test_models_are_compiled_and_saved_without_a_gpu(tmp_path: Path) -> None:
    mirlo.compile(model, target="nvvm{chip=sm_90a}", cache=False).save(tmp_path / "model.mirlo")
    loaded = mirlo.load(tmp_path / "model.mirlo")
    assert loaded.artifact.metadata["chip"] == "sm_90a" and b".target sm_90a" in loaded.artifact.code
