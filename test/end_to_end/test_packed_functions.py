"""`relax.call_dps_packed`, from IR to a call: Python and C functions, values before and after, failures."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import mirlo
from mirlo import R
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.runtime import packed
from mirlo.runtime.errors import PackedFunctionError

# The packed function works between kernels, with a weight-like constant, on a view, and is called twice.
GRAPH = """
func.func @main(%x: tensor<4x6xf32> {relax.name = "x"}) -> (tensor<24xf32> {relax.name = "y"}, tensor<i1>) {
  %two = "relax.constant"() {value = dense<2.0> : tensor<24xf32>} : () -> tensor<24xf32>
  %0 = "relax.abs"(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %1 = "relax.reshape"(%0) {shape = [24]} : (tensor<4x6xf32>) -> tensor<24xf32>
  %2:2 = "relax.call_dps_packed"(%1, %two) {function = "my.scale", OPERANDS, RESULTS}
    : (tensor<24xf32>, tensor<24xf32>) -> (tensor<24xf32>, tensor<i1>)
  %3:2 = "relax.call_dps_packed"(%2#0, %two) {function = "my.scale", OPERANDS, RESULTS}
    : (tensor<24xf32>, tensor<24xf32>) -> (tensor<24xf32>, tensor<i1>)
  %4 = "relax.negative"(%3#0) : (tensor<24xf32>) -> tensor<24xf32>
  return %4, %3#1 : tensor<24xf32>, tensor<i1>
}
"""
X = np.linspace(-3, 4, 24, dtype=np.float32).reshape(4, 6)


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch) -> None:
    monkeypatch.setattr(packed, "_FUNCTIONS", {})


def _graph() -> str:
    operands = f"operandSegmentSizes = array<i32: 2{', 0' * 15}>"
    return GRAPH.replace("OPERANDS", operands).replace("RESULTS", "resultSegmentSizes = array<i32: 1, 1, 0, 0>")


def _compile(text: str):
    with make_context(), ir.Location.unknown():
        return mirlo.compile(ir.Module.parse(text))


def test_python_function() -> None:
    seen = []

    @packed.packed("my.scale")
    def scale(x, factor, y, positive):
        seen.append((x.shape, x.dtype, positive.shape, positive.dtype))
        y[:] = x * factor
        positive[...] = (y > 0).all()

    executable = _compile(_graph())
    assert executable.artifact.packed == ("my.scale",)
    y, positive = executable(X)
    np.testing.assert_array_equal(y, -4 * np.abs(X).ravel())
    assert positive == (np.abs(X) > 0).all()
    assert seen == [((24,), np.float32, (), np.bool_)] * 2
    assert [row.symbol for row in executable.artifact.kernels].count("my.scale") == 2
    assert executable.profile(X).rows


def test_failure_names_the_function_and_stops() -> None:
    calls = []

    @packed.packed("my.scale")
    def scale(*arrays):
        calls.append(len(arrays))
        raise ValueError("no scale today")

    executable = _compile(_graph())
    with pytest.raises(PackedFunctionError, match="packed function 'my.scale' raised ValueError: no scale today"):
        executable(X)
    assert calls == [4]  # the second call is not made


BRANCHES = """
func.func @main(%x: tensor<4xf32> {relax.name = "x"}, %c: tensor<i1> {relax.name = "c"}) -> tensor<4xf32> {
  %flag = tensor.extract %c[] : tensor<i1>
  %0 = scf.if %flag -> tensor<4xf32> {
    %1 = "relax.call_dps_packed"(%x) {function = "my.one", SEGMENTS} : (tensor<4xf32>) -> tensor<4xf32>
    %2 = "relax.call_dps_packed"(%1) {function = "my.two", SEGMENTS} : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %2 : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  %3 = "relax.call_dps_packed"(%0) {function = "my.one", SEGMENTS} : (tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}
"""


def test_calls_in_branches() -> None:
    calls = []

    @packed.packed("my.one")
    def one(x, y):
        calls.append(1)
        y[:] = x + 1

    @packed.packed("my.two")
    def two(x, y):
        calls.append(2)
        if x[0] > 100:
            raise ValueError("too large")
        y[:] = 2 * x

    segments = f"operandSegmentSizes = array<i32: 1{', 0' * 15}>, resultSegmentSizes = array<i32: 1, 0, 0, 0>"
    executable = _compile(BRANCHES.replace("SEGMENTS", segments))
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(executable(x, np.array(True)), 2 * (x + 1) + 1)
    np.testing.assert_array_equal(executable(x, np.array(False)), x + 1)
    assert calls == [1, 2, 1, 1]
    with pytest.raises(PackedFunctionError, match="packed function 'my.two' raised ValueError: too large"):
        executable(x + 200, np.array(True))
    assert calls[4:] == [1, 2]


C_SOURCE = r"""
#include <stdint.h>
typedef struct { void* data; int32_t device_type, device_id, ndim; uint8_t code, bits; uint16_t lanes;
                 int64_t *shape, *strides; uint64_t byte_offset; } DLTensor;
int scale(DLTensor** t, int64_t count) {
  if (count != 4 || t[0]->ndim != 1 || t[0]->strides[0] != 1 || t[3]->ndim != 0 || t[3]->code != 6) return 7;
  float *x = t[0]->data, *f = t[1]->data, *y = t[2]->data;
  for (int64_t i = 0; i < t[0]->shape[0]; ++i) y[i] = x[i] * f[i];
  *(uint8_t*)t[3]->data = 1;
  return y[0] > 1000.0f ? -3 : 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_c_function(tmp_path) -> None:
    (tmp_path / "scale.c").write_text(C_SOURCE)
    library = tmp_path / "scale.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, tmp_path / "scale.c"], check=True)
    packed.register("my.scale", ctypes.CDLL(str(library)).scale)
    executable = _compile(_graph())
    y, positive = executable(X)
    np.testing.assert_array_equal(y, -4 * np.abs(X).ravel())
    assert positive
    with pytest.raises(PackedFunctionError, match="packed function 'my.scale' failed: it returned -3"):
        executable(X * 1000)
    executable.save(tmp_path / "model.mirlo")
    np.testing.assert_array_equal(mirlo.load(tmp_path / "model.mirlo")(X)[0], y)


def test_missing_function() -> None:
    with pytest.raises(PackedFunctionError, match="the model calls 'my.scale', not registered"):
        _compile(_graph())


def test_calls_that_allocate_need_a_host_function() -> None:
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "relax.call_packed"(%x) {function = "my.f"} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    text = text.replace(
        '"my.f"',
        f'"my.f", operandSegmentSizes = array<i32: 1{", 0" * 15}>, resultSegmentSizes = array<i32: 1, 0, 0, 0>',
    )
    with pytest.raises(PackedFunctionError, match="calls 'my.f', not registered: register it with .*host_function"):
        _compile(text)


@mirlo.script
def ONCE(x: R.Tensor[(4,), R.f32]):  # noqa: N802
    return R.call_dps_packed("my.alone", R.exp(x), out=R.Tensor[(4,), R.f32])


@mirlo.script
def TWICE(x: R.Tensor[(4,), R.f32]):  # noqa: N802
    y = R.call_dps_packed("my.alone", R.exp(x), out=R.Tensor[(4,), R.f32])
    return R.call_dps_packed("my.alone", y, out=R.Tensor[(4,), R.f32])


@pytest.mark.parametrize(
    ("model", "nodes"), [(ONCE, r" \(it computes .*test_packed_functions.py:\d+:\d+\)$"), (TWICE, "$")]
)
def test_a_failure_names_the_nodes(model: ir.Module, nodes: str) -> None:
    """Where one call has failed only: of several calls of one function any may have."""

    @packed.packed("my.alone")
    def alone(*arrays):
        raise ValueError("not today")

    executable = mirlo.compile(model, cache=False)
    with pytest.raises(PackedFunctionError, match=f"packed function 'my.alone' raised ValueError: not today{nodes}"):
        executable(np.ones(4, np.float32))
