"""Fourier transforms whose matrix would be large: in steps over factors, or with a matrix that the call computes."""

import tracemalloc

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.frontends.onnx.importer import import_model

FORMS = [(2, 0, 0), (1, 0, 1), (2, 1, 0), (2, 1, 1)]
"""Parts of an element, and the attributes `inverse` and `onesided`."""


def model_of(shape, inverse, onesided):
    made = helper.make_node("DFT", ["x"], ["y"], inverse=inverse, onesided=onesided)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph([made], "g", [x], [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.sample(16)
@pytest.mark.parametrize(("parts", "inverse", "onesided"), FORMS)
@pytest.mark.parametrize("length", [4098, 4099, 8192, 8186])
def test_long_transforms(length, parts, inverse, onesided):
    length += inverse and onesided and length % 2  # half a spectrum is one of an even number of elements
    size = length // 2 + 1 if inverse and onesided else length
    x = np.random.default_rng(0).standard_normal((2, size, parts)).astype(np.float32)
    values = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    if inverse and onesided:
        expected = np.fft.irfft(values, length)[..., None]
    else:
        spectrum = np.fft.ifft(values) if inverse else np.fft.fft(values)
        kept = spectrum[:, : length // 2 + 1] if onesided else spectrum
        expected = np.stack([kept.real, kept.imag], -1)
    result = mirlo.compile(model_of(x.shape, inverse, onesided), cache=False, jobs=1)(x)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("length", [2039, 8191, 8192])
def test_the_import_makes_no_large_matrix(length):
    tracemalloc.start()
    import_model(model_of([1, length, 2], 0, 0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 250 << 20
