"""Factors, inverses, determinants and systems of equations, compiled without ONNX, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

from module_cases import DYNAMIC, Calls, compiled, require_close  # noqa: E402

import mirlo  # noqa: E402
from mirlo.extend.frontend import FrontendError  # noqa: E402

L = torch.linalg
FLAGS = (False, True)


def _of_one(a: Any, b: Any) -> list[Any]:
    positive = a @ a.mT + torch.eye(a.shape[-1], dtype=a.dtype)
    return [
        L.cholesky(positive), L.cholesky_ex(positive, upper=True), torch.cholesky_inverse(a, True), L.inv(a),
        torch.inverse(a), L.det(a), L.slogdet(a), torch.logdet(a), L.matrix_power(a, -2),
        L.tensorinv(a[0].reshape(4, 2, 2), ind=1),
        L.tensorsolve(a[0], b[0, :, 0]), L.slogdet(a[:0]), L.inv(a[:, :0, :0]),
    ]  # fmt: skip


def _factors(a: Any, b: Any) -> list[Any]:
    shapes = (a, torch.cat([a, b], -1), torch.cat([a, b.mT], -2))
    made: list[Any] = [function(x) for x in shapes for function in (L.lu_factor, L.lu, L.lu_factor_ex)]
    return [*made, *(torch.lu_unpack(*L.lu_factor(x)) for x in shapes)]


def _solutions(a: Any, b: Any) -> list[Any]:
    sides = {True: b, False: b.mT}
    pairs = [(one, other) for one in FLAGS for other in FLAGS]
    return [
        L.solve(a, b), L.solve(a, b.mT, left=False), L.solve_ex(a[0], b), L.solve(a, b[..., 0]),
        L.solve(a[0], b[0, :, 0]),
        *(L.lu_solve(*L.lu_factor(a), sides[left], left=left, adjoint=adjoint) for left, adjoint in pairs),
        *(L.solve_triangular(a, sides[left], upper=up, left=left) for left, up in pairs),
        *(torch.triangular_solve(b, a[0], up, flag, not flag) for flag, up in pairs),
        *(torch.cholesky_solve(b, a[0], up) for up in FLAGS),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "kind"), [(_of_one, "float32"), (_factors, "float64"), (_solutions, "float32")],
    ids=lambda given: getattr(given, "__name__", given),
)  # fmt: skip
def test_batches_of_matrices(function: Any, kind: str) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(2, 4, n, dtype=getattr(torch, kind)) + torch.eye(4, n) for n in (4, 3))
    require_close(compiled(Calls(function), a, b).torch(a, b), function(a, b))


def test_one_program_serves_all_sizes() -> None:
    made = compiled(Calls(L.inv), torch.eye(3).repeat(5, 1, 1), dynamic_shapes={"x": {0: DYNAMIC}})
    for count in (2, 7):
        x = torch.randn(count, 3, 3) + 3 * torch.eye(3)
        require_close(made.torch(x), L.inv(x))


def test_singular_matrices_have_the_number_of_their_pivot() -> None:
    one = torch.tensor([[4.0, 1, 0], [1, 4, 1], [0, 1, 4]])
    x = torch.stack([one, torch.tensor([[1.0, 2, 4], [2, 4, 8], [4, 8, 16]]), one * torch.tensor([1.0, 1, 0])])

    def numbers(x: Any) -> list[Any]:
        return [L.inv_ex(x)[1], L.lu_factor_ex(x)[2], L.solve_ex(x, x[..., 0])[1], L.cholesky_ex(x)[1], L.det(x)]

    require_close(compiled(Calls(numbers), x).torch(x), numbers(x))


@pytest.mark.parametrize(
    ("function", "message"),
    [(L.inv, "linalg.inv: a matrix is singular"), (L.cholesky, "linalg.cholesky: a matrix is not positive definite"),
     (lambda x: L.solve(x, x[:, 0]), "linalg.solve: a matrix is singular")],
)  # fmt: skip
def test_matrices_without_a_solution_are_errors_of_the_call(function: Any, message: str) -> None:
    x = torch.eye(3)
    made = compiled(Calls(function), x)
    require_close(made.torch(x), function(x))
    with pytest.raises(L.LinAlgError):
        function(x * 0)
    with pytest.raises(mirlo.MirloError, match=message):
        made.torch(x * 0)


def _reflections(a: Any) -> list[Any]:
    factors = torch.geqrf(a)
    square = a[..., : a.shape[-1], :]
    sides = [(left, flag) for left in FLAGS for flag in FLAGS]
    return [
        factors, *(L.qr(a, mode) for mode in ("reduced", "complete", "r")), L.qr(a.mT), L.qr(a * 0),
        L.householder_product(*factors),
        *(torch.ormqr(*factors, a if left else a.mT, left, flag) for left, flag in sides), L.qr(square)[1],
    ]  # fmt: skip


def _spectra(a: Any) -> list[Any]:
    """Compute values that do not depend on the signs of vectors."""
    square = a[..., : a.shape[-1], :]
    least = a @ a[..., :1, :].mT @ a[..., :1, :]  # of rank 1
    results = [L.eigvalsh(square), L.eigvalsh(square, "U"), L.svdvals(a), L.svdvals(least)[..., :1]]
    for x in (square, square[..., :1, :1]):
        values, vectors = L.eigh(x)
        results += [vectors * values.unsqueeze(-2) @ vectors.mT, vectors.mT @ vectors]
    for x, is_full in ((a, True), (a.mT, False), (least, True), (a * 1e12, False)):
        left, values, right = L.svd(x, is_full)
        size = values.shape[-1]
        results += [left[..., :size] * values.unsqueeze(-2) @ right[..., :size, :], left.mT @ left, right @ right.mT]
    symmetric = square + square.mT
    return [
        *results, L.cond(square), L.matrix_norm(a, "nuc"), L.pinv(a), L.pinv(least, rtol=1e-3),
        L.pinv(a, atol=torch.tensor([0.5, 0.0])), L.pinv(symmetric, hermitian=True),
    ]  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("function", [_reflections, _spectra], ids=lambda function: function.__name__)
def test_factors_with_orthogonal_matrices(function: Any, kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 7, 5, dtype=getattr(torch, kind))
    require_close(compiled(Calls(function), x).torch(x), function(x))


@pytest.mark.sample(4)
@pytest.mark.parametrize("size", [1, 2, 3, 20])
def test_eigenvalues_of_many_sizes(size: int) -> None:
    torch.manual_seed(1)
    x = torch.randn(size, size, dtype=torch.float64)
    require_close(compiled(Calls(L.eigvalsh), x).torch(x), L.eigvalsh(x))
    require_close(compiled(Calls(L.svdvals), x).torch(x), L.svdvals(x))


def test_matrices_of_nothing() -> None:
    x = torch.zeros(2, 0, 3)

    def function(x: Any) -> list[Any]:
        return [L.qr(x, "complete"), L.svd(x), L.eigvalsh(x @ x.mT), L.pinv(x)]

    require_close(compiled(Calls(function), x).torch(x), function(x))


def test_other_factors_are_refused_by_name() -> None:
    from mirlo_torch.decompose import decomposed

    program = torch.export.export(Calls(L.eigvals), (torch.eye(3),))
    with pytest.raises(FrontendError, match="linalg_.*that are not symmetric"):
        decomposed(program)
