"""Factors of matrices and triangular systems, compared with numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from mirlo_stablehlo.errors import StablehloImportError
from mirlo_stablehlo.importer import import_stablehlo

import mirlo

RANDOM = np.random.default_rng(9)


def compiled(text: str) -> mirlo.Executable:
    module, store = import_stablehlo(text)
    return mirlo.compile(module, params=store, cache=False, jobs=1)


def test_cholesky() -> None:
    form = "tensor<2x4x4xf32>"
    exe = compiled(f"""func.func @main(%x: {form}) -> ({form}, {form}) {{
      %0 = stablehlo.cholesky %x, lower = true : {form}
      %1 = stablehlo.cholesky %x, lower = false : {form}
      return %0, %1 : {form}, {form}
    }}""")
    x = RANDOM.standard_normal((2, 4, 4), np.float32)
    x = x @ x.swapaxes(1, 2) + np.eye(4, dtype=np.float32)
    wanted = np.linalg.cholesky(np.float64(x))
    noise = np.triu(np.full((4, 4), np.nan, np.float32), 1)
    lower, upper = exe(x)[0], exe(x)[1]
    np.testing.assert_allclose(lower, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(upper, wanted.swapaxes(1, 2), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(exe(x + noise)[0], lower)
    np.testing.assert_array_equal(exe(x + noise.T)[1], upper)


@pytest.mark.parametrize("left", [True, False])
def test_triangular_solve(left: bool) -> None:
    a, b = "tensor<4x4xf32>", "tensor<4x3xf32>" if left else "tensor<3x4xf32>"
    forms = list(itertools.product((True, False), ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), (True, False)))
    lines = []
    for i, (lower, transpose, unit) in enumerate(forms):
        words = f"left_side = {left}, lower = {lower}, unit_diagonal = {unit}".lower()
        words += f", transpose_a = #stablehlo<transpose {transpose}>"
        lines.append(f'%{i} = "stablehlo.triangular_solve"(%a, %b) <{{{words}}}> : ({a}, {b}) -> {b}')
    names, types = ", ".join(f"%{i}" for i in range(len(forms))), ", ".join([b] * len(forms))
    body = "\n".join([*lines, f"return {names} : {types}"])
    exe = compiled(f"func.func @main(%a: {a}, %b: {b}) -> ({types}) {{\n{body}\n}}")
    matrix = RANDOM.standard_normal((4, 4), np.float32) + 3 * np.eye(4, dtype=np.float32)
    right = RANDOM.standard_normal((4, 3) if left else (3, 4), np.float32)
    for made, (lower, transpose, unit) in zip(exe(matrix, right), forms, strict=True):
        part = np.float64(np.tril(matrix) if lower else np.triu(matrix))
        part = part - np.diag(np.diag(part)) + np.eye(4) if unit else part
        part = part if transpose == "NO_TRANSPOSE" else part.T
        np.testing.assert_allclose(part @ made if left else made @ part, right, rtol=1e-3, atol=1e-4)


LAPACK = """func.func @main(%x: tensor<?x5xf32> {mlir.name = "x"}) -> tensor<5xf32> {
  %0 = stablehlo.custom_call @lapack_strsm_ffi(%x, %x) {mhlo.backend_config = CONFIG}
    : (tensor<?x5xf32>, tensor<?x5xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}"""


@pytest.mark.parametrize("config", ["{uplo = 76 : ui8}", "{side = 1.0 : f32}", "{}", '"side"'])
def test_arguments_of_lapack_are_checked(config: str) -> None:
    with pytest.raises(StablehloImportError, match="has no argument 'side'"):
        import_stablehlo(LAPACK.replace("CONFIG", config))


def test_operands_of_lapack_are_counted() -> None:
    text = """func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
      %0 = stablehlo.custom_call @lapack_spotrf_ffi() : () -> tensor<5xf32>
      return %0 : tensor<5xf32>
    }"""
    with pytest.raises(StablehloImportError, match="takes 1 operands, found 0"):
        import_stablehlo(text)


def test_complex_matrices_are_refused() -> None:
    text = """func.func @main(%x: tensor<2x2xcomplex<f32>>) -> tensor<2x2xcomplex<f32>> {
      %0 = stablehlo.cholesky %x, lower = true : tensor<2x2xcomplex<f32>>
      return %0 : tensor<2x2xcomplex<f32>>
    }"""
    with pytest.raises(StablehloImportError, match="'stablehlo.cholesky' .* is not supported for complex numbers"):
        import_stablehlo(text)
