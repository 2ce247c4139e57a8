"""Complex numbers, Fourier transforms and random bits, compared with the reference interpreter and with numpy."""

from __future__ import annotations

import numpy as np
import pytest
from interpreted import require_equal
from mirlo_stablehlo.errors import StablehloImportError
from mirlo_stablehlo.importer import import_stablehlo

import mirlo

RANDOM = np.random.default_rng(7)
UNARY = (
    "cosine", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "negate", "rsqrt", "sign",
    "sine", "sqrt", "tan", "tanh",
)  # fmt: skip
BINARY = ("add", "subtract", "multiply", "divide", "power")
COUNT = 40


def _program(kind: str) -> str:
    """Return a program with all complex functions, from real inputs to real results."""
    real, whole = f"tensor<{COUNT}x{kind}>", f"tensor<{COUNT}xcomplex<{kind}>>"
    lines = [
        f"%z = stablehlo.complex %a, %b : {whole}",
        f"%c = stablehlo.constant dense<(0.5,-2.0)> : {whole}",
        f"%w = stablehlo.complex %b, %a : {whole}",
        f"%v = stablehlo.add %w, %c : {whole}",
    ]
    made = [f"%{name} = stablehlo.{name} %z : {whole}" for name in UNARY]
    made += [f"%{name} = stablehlo.{name} %z, %v : {whole}" for name in BINARY]
    results = []
    for name in (*UNARY, *BINARY):
        for part in ("real", "imag"):
            made.append(f"%{part}_{name} = stablehlo.{part} %{name} : ({whole}) -> {real}")
            results.append(f"%{part}_{name}")
    made.append(f"%abs = stablehlo.abs %z : ({whole}) -> {real}")
    results.append("%abs")
    types = ", ".join([real] * len(results))
    body = "\n".join([*lines, *made, f"return {', '.join(results)} : {types}"])
    return f"func.func @main(%a: {real}, %b: {real}) -> ({types}) {{\n{body}\n}}"


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kind", "tolerance"), [("f32", 2e-5), ("f64", 1e-11)])
def test_elementwise(kind: str, tolerance: float) -> None:
    parts = RANDOM.standard_normal((2, COUNT)).astype({"f32": np.float32, "f64": np.float64}[kind])
    parts[0, :3] = 1e-3, -2, 3
    parts[1, :3] = 1e-3, 0, 1e-4
    require_equal(_program(kind), *parts, tolerance=tolerance)


MOVED = """func.func @main(%a: tensor<3x4xf32>, %b: tensor<3x4xf32>)
    -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<3x4xi1>) {
  %z = stablehlo.complex %a, %b : tensor<3x4xcomplex<f32>>
  %c = stablehlo.constant dense<[[(1.0,2.0),(3.0,-4.0),(0.5,0.0),(0.0,1.0)]]> : tensor<1x4xcomplex<f32>>
  %0 = stablehlo.concatenate %z, %c, dim = 0
    : (tensor<3x4xcomplex<f32>>, tensor<1x4xcomplex<f32>>) -> tensor<4x4xcomplex<f32>>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<4x4xcomplex<f32>>) -> tensor<4x4xcomplex<f32>>
  %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0]
    : (tensor<4x4xcomplex<f32>>, tensor<4x4xcomplex<f32>>) -> tensor<4x4xcomplex<f32>>
  %3 = stablehlo.real %2 : (tensor<4x4xcomplex<f32>>) -> tensor<4x4xf32>
  %4 = stablehlo.imag %2 : (tensor<4x4xcomplex<f32>>) -> tensor<4x4xf32>
  %5 = stablehlo.slice %0 [0:3, 0:4] : (tensor<4x4xcomplex<f32>>) -> tensor<3x4xcomplex<f32>>
  %6 = stablehlo.compare EQ, %z, %5 : (tensor<3x4xcomplex<f32>>, tensor<3x4xcomplex<f32>>) -> tensor<3x4xi1>
  return %3, %4, %6 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<3x4xi1>
}"""


def test_movement_and_products() -> None:
    require_equal(MOVED, *RANDOM.standard_normal((2, 3, 4), np.float32))


LOOP = """func.func @main(%x: tensor<3xcomplex<f32>>, %n: tensor<i32>) -> tensor<3xcomplex<f32>> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %pair = stablehlo.tuple %x, %zero : tuple<tensor<3xcomplex<f32>>, tensor<i32>>
  %v0 = stablehlo.get_tuple_element %pair[0] : (tuple<tensor<3xcomplex<f32>>, tensor<i32>>) -> tensor<3xcomplex<f32>>
  %i0 = stablehlo.get_tuple_element %pair[1] : (tuple<tensor<3xcomplex<f32>>, tensor<i32>>) -> tensor<i32>
  %token = stablehlo.create_token : !stablehlo.token
  %0:3 = stablehlo.while(%i = %i0, %v = %v0, %t = %token) : tensor<i32>, tensor<3xcomplex<f32>>, !stablehlo.token
  cond {
    %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.add %i, %one : tensor<i32>
    %2 = stablehlo.multiply %v, %x : tensor<3xcomplex<f32>>
    stablehlo.return %1, %2, %t : tensor<i32>, tensor<3xcomplex<f32>>, !stablehlo.token
  }
  return %0#1 : tensor<3xcomplex<f32>>
}"""


def test_inputs_and_results_hold_the_parts_in_a_last_dim() -> None:
    module, store = import_stablehlo(LOOP)
    exe = mirlo.compile(module, params=store, cache=False, jobs=1)
    x = np.array([1 + 2j, -1j, 0.5], np.complex64)
    assert [list(spec.shape) for spec in (*exe.inputs, *exe.outputs)] == [[3, 2], [], [3, 2]]
    made = exe(x.view(np.float32).reshape(3, 2), np.int32(4)).view(np.complex64)[:, 0]
    np.testing.assert_allclose(made, x**5, rtol=1e-5, atol=1e-6)


LENGTHS = [1, 2, 3, 8, 15, 64, 97, 300, 512, 1001]


@pytest.mark.sample(2)
@pytest.mark.parametrize("length", LENGTHS)
def test_fourier_transforms(length: int) -> None:
    bins = length // 2 + 1
    whole, half, real = f"tensor<2x{length}xcomplex<f32>>", f"tensor<2x{bins}xcomplex<f32>>", f"tensor<2x{length}xf32>"
    text = f"""func.func @main(%x: {whole}, %h: {half}, %r: {real}) -> ({whole}, {whole}, {half}, {real}) {{
      %0 = stablehlo.fft %x, type = FFT, length = [{length}] : ({whole}) -> {whole}
      %1 = stablehlo.fft %x, type = IFFT, length = [{length}] : ({whole}) -> {whole}
      %2 = stablehlo.fft %r, type = RFFT, length = [{length}] : ({real}) -> {half}
      %3 = stablehlo.fft %h, type = IRFFT, length = [{length}] : ({half}) -> {real}
      return %0, %1, %2, %3 : {whole}, {whole}, {half}, {real}
    }}"""
    x, h, r = (RANDOM.standard_normal((2, *shape), np.float32) for shape in ((length, 2), (bins, 2), (length,)))
    z, spectrum = (part.view(np.complex64)[..., 0] for part in (x, h))
    wanted = [np.fft.fft(z), np.fft.ifft(z), np.fft.rfft(r), np.fft.irfft(spectrum, length)]
    module, store = import_stablehlo(text)
    found = mirlo.compile(module, params=store, cache=False, jobs=1)(x, h, r)
    found = [*(part.view(np.complex64)[..., 0] for part in found[:3]), found[3]]
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6 * np.sqrt(length) * max(1, np.abs(theirs).max()))


def test_a_transform_of_several_dims() -> None:
    form, half = "tensor<3x4x6xf32>", "tensor<3x4x4xcomplex<f32>>"
    text = f"""func.func @main(%r: {form}) -> ({half}, {form}) {{
      %0 = stablehlo.fft %r, type = RFFT, length = [3, 4, 6] : ({form}) -> {half}
      %1 = stablehlo.fft %0, type = IRFFT, length = [3, 4, 6] : ({half}) -> {form}
      return %0, %1 : {half}, {form}
    }}"""
    r = RANDOM.standard_normal((3, 4, 6), np.float32)
    module, store = import_stablehlo(text)
    spectrum, back = mirlo.compile(module, params=store, cache=False, jobs=1)(r)
    np.testing.assert_allclose(spectrum.view(np.complex64)[..., 0], np.fft.rfftn(r), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(back, r, rtol=1e-4, atol=1e-5)


GENERATORS = {  # known answers of the authors' library, Random123, for a state of zeros and the counter 0
    ("PHILOX", 4): [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
    ("THREE_FRY", 2): [0x6B200159, 0x99BA4EFE],
}


@pytest.mark.parametrize(("algorithm", "count"), GENERATORS)
def test_random_bits(algorithm: str, count: int) -> None:
    text = f"""func.func @main(%s: tensor<2xui64>) -> (tensor<2xui64>, tensor<{count}xui32>) {{
      %0, %1 = stablehlo.rng_bit_generator %s, algorithm = {algorithm}
        : (tensor<2xui64>) -> (tensor<2xui64>, tensor<{count}xui32>)
      return %0, %1 : tensor<2xui64>, tensor<{count}xui32>
    }}"""
    module, store = import_stablehlo(text)
    state, bits = mirlo.compile(module, params=store, cache=False, jobs=1)(np.zeros(2, np.uint64))
    assert bits.tolist() == GENERATORS[algorithm, count] and state.tolist() == [0, 1]


REFUSED = {
    "they have no order": """%0 = stablehlo.compare LT, %z, %z
      : (tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>) -> tensor<2xi1>""",
    "compares by another function": """%0 = "stablehlo.sort"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.complex %a, %b : tensor<complex<f32>>
        %d = stablehlo.compare EQ, %c, %c : (tensor<complex<f32>>, tensor<complex<f32>>) -> tensor<i1>
        stablehlo.return %d : tensor<i1>
      }) : (tensor<2xf32>) -> tensor<2xf32>""",
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_errors(message: str) -> None:
    text = f"""func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
      %z = stablehlo.complex %x, %x : tensor<2xcomplex<f32>>
      {REFUSED[message]}
      return %x : tensor<2xf32>
    }}"""
    with pytest.raises(StablehloImportError, match=message):
        import_stablehlo(text)
